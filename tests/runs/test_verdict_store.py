"""The store of verdicts and answers: what is kept, across processes, kills and damage."""

import sqlite3
from pathlib import Path

import pytest

from posttrain.errors import UserError
from posttrain.runs.verdict_store import StoredAnswers, VerdictStore, digest
from posttrain.serving.spending import Usage


def test_what_is_kept_is_found_by_another_process(tmp_path: Path) -> None:
    first, keys = VerdictStore(tmp_path / "kept.db"), [digest("v", n) for n in range(1200)]
    first.add({key: {"margin": n} for n, key in enumerate(keys)})
    second = VerdictStore(tmp_path / "kept.db")
    found = second.find([*keys, digest("v", "other")])
    assert len(found) == 1200 and found[keys[700]] == {"margin": 700}
    first.close()
    second.close()


def test_keys_are_of_everything_that_was_asked() -> None:
    assert digest("v", ["a", "b"]) != digest("v", ["ab"]) and digest("v", {"a": 1, "b": 2}) == digest(
        "v", {"b": 2, "a": 1}
    )


def test_a_batch_that_was_not_committed_is_lost_alone(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path / "kept.db")
    store.add({b"one": 1})
    store._connection.execute("INSERT INTO kept VALUES (?, ?)", (b"two", "2"))
    del store
    assert VerdictStore(tmp_path / "kept.db").find([b"one", b"two"]) == {b"one": 1}


def test_damage_is_as_good_as_nothing(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path / "kept.db")
    store.add({b"one": 1})
    with sqlite3.connect(tmp_path / "kept.db") as connection:
        connection.execute("UPDATE kept SET value = 'no JSON'")
    assert store.find([b"one"]) == {}
    (tmp_path / "text.db").write_text("no store at all, but a text")
    with pytest.raises(UserError, match="cannot be used as a store"):
        VerdictStore(tmp_path / "text.db")
    with pytest.raises(UserError, match="make it first"):
        VerdictStore(tmp_path / "none" / "kept.db")


def test_answers_are_shared_between_roles_and_not_between_endpoints(tmp_path: Path) -> None:
    store = VerdictStore(tmp_path / "kept.db")
    one, other = StoredAnswers(store, "http://a/v1"), StoredAnswers(store, "http://b/v1")
    request = {"model": "m", "messages": [{"role": "user", "content": "q"}], "seed": 1}
    assert one.find("judge", request) is None
    one.add("judge", request, "yes", Usage(prompt=3, completion=1))
    assert one.find("teacher", request) == "yes" and other.find("judge", request) is None
    assert one.find("judge", {**request, "seed": 2}) is None
