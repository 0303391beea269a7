"""Labels and notes of one's own: what is kept beside a run, and who may write it."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from posttrain.errors import UserError
from posttrain.viewer.notes import Note, Notes, Rollout, noted, used
from tests.runs.made_runs import make_run
from tests.viewer.looking import Page, browser

PLACE = Rollout(2, 0, 1)
NOTES = "/runs/quickstart-1/notes"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path, sft=1, rl=1, tasks=2)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def form(looking: TestClient, address: str = "/runs/quickstart-1/steps/2/groups/0") -> dict[str, str]:
    """The fields of the first rollout's form, as a browser has them."""
    fields = {str(a["name"]): str(a["value"]) for _, a in Page(looking.get(address).text).elements if "name" in a
              and "value" in a}  # fmt: skip
    return {**fields, "sample": "1"}


def test_notes_are_kept_beside_the_run_and_can_be_removed(run: Path) -> None:
    before, notes = everything(run), Notes(run)
    assert notes.read() == {} and notes.writable
    notes.write(PLACE, "hack,  odd one , hack,", "first\r\nsecond ")
    assert notes.read() == {PLACE: Note(labels=("hack", "odd one"), note="first\nsecond")}
    notes.write(Rollout(1, 2, 3), "hack", "")
    assert used(notes.read()) == {"hack": 2, "odd one": 1}
    notes.write(PLACE, "", " ")
    assert list(notes.read()) == [Rollout(1, 2, 3)]
    assert everything(run) == before, "nothing in the run is touched"
    assert notes.path == run.parent / "quickstart-1.notes.json"


def test_what_is_too_long_is_refused() -> None:
    assert noted("a" * 40, "b" * 10_000) == Note(labels=("a" * 40,), note="b" * 10_000)
    for labels, note, said in (
        ("a" * 41, "", "a label has at most 40 characters, got 41"),
        (",".join(map(str, range(13))), "", "at most 12 labels, got 13"),
        ("", "b" * 10_001, "at most 10,000 characters, got 10,001"),
    ):
        with pytest.raises(UserError, match=said):
            noted(labels, note)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", '{"rollouts": {"../x": {"note": ""}}}', '{"version": 2}', '{"rollouts": {"1/2/3": {"labels": [""]}}}'],
)
def test_a_damaged_file_is_reported_and_kept(run: Path, content: str) -> None:
    notes = Notes(run)
    notes.path.write_text(content)
    with pytest.raises(UserError, match="does not hold notes of this version"):
        notes.write(PLACE, "a", "")
    assert notes.path.read_text() == content


def test_a_link_is_not_followed(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    Notes(run).path.symlink_to(other)
    with pytest.raises(UserError, match="it is a link"):
        Notes(run).write(PLACE, "a", "")
    assert other.read_text() == "{}"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_where_one_may_not_write_there_is_no_form(run: Path) -> None:
    run.parent.chmod(0o555)
    try:
        with pytest.raises(UserError, match="where you may not write"):
            Notes(run).write(PLACE, "a", "")
    finally:
        run.parent.chmod(0o755)


def test_the_page_states_where_one_may_not_write(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Notes, "writable", False)
    looking = browser(run)
    text = looking.get("/runs/quickstart-1/steps/2/groups/0").text
    assert "where you may not write" in text and '<form method="post"' not in text
    with pytest.raises(UserError, match="where you may not write"):
        Notes(run).write(PLACE, "a", "")


def test_a_form_of_the_page_writes(run: Path) -> None:
    looking = browser(run)
    given = {**form(looking), "labels": "hack", "note": "why?"}
    answer = looking.post(NOTES, data=given, follow_redirects=False)
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/runs/quickstart-1/steps/2/groups/0?")
    assert answer.headers["location"].endswith("sample=1#rollout-1")
    assert Notes(run).read() == {PLACE: Note(labels=("hack",), note="why?")}
    assert "why?" in looking.get("/runs/quickstart-1/queue").text
    found = looking.get("/runs/quickstart-1/search?label=hack&as=json").json()
    assert [(r["step"], r["group_index"], r["sample"], r["note"]) for r in found["rollouts"]] == [(*PLACE, "why?")]
    lines = looking.get("/runs/quickstart-1/export?label=hack").text.splitlines()
    assert [json.loads(line)["labels"] for line in lines] == [["hack"]]


@pytest.mark.parametrize(
    ("changes", "headers", "status"),
    [
        ({"token": ""}, {}, 403),
        ({"token": "x" * 32}, {}, 403),
        ({}, {"origin": "http://evil.example"}, 403),
        ({}, {"origin": "null"}, 403),
        ({}, {"sec-fetch-site": "same-site"}, 403),
        ({}, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 403),
        ({"sample": "99"}, {}, 404),
        ({"step": "x"}, {}, 400),
        ({"labels": "l" * 41}, {}, 400),
        ({"note": "n" * 200_000}, {}, 413),
        ({}, {"origin": "http://localhost", "sec-fetch-site": "same-origin"}, 303),
    ],
)
def test_nobody_else_writes(run: Path, changes: dict[str, Any], headers: dict[str, str], status: int) -> None:
    """Other sites have no token, and are refused by where they are; nothing is written then."""
    looking = browser(run)
    given = {**form(looking), "labels": "a", "note": "", **changes}
    assert looking.post(NOTES, data=given, headers=headers, follow_redirects=False).status_code == status
    assert Notes(run).path.exists() == (status == 303)


def test_a_viewer_with_a_key_takes_no_form_without_it(run: Path) -> None:
    looking = browser(run, key="secret", hosts=("*",))
    assert looking.post(NOTES, data={"token": "", "step": "2"}).status_code == 401
    assert not Notes(run).path.exists()
