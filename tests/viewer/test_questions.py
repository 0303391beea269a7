"""Queries of a run's tables, compared with the same computed in Python from the rows."""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from posttrain.errors import UserError
from posttrain.runs.store import RunStore, rollout_rows
from posttrain.types import Score
from posttrain.viewer import questions
from posttrain.viewer.notes import Rollout
from posttrain.viewer.search import ORDERS, Found, Wanted, rollouts
from posttrain.viewer.triage import REASONS
from tests.runs.made_runs import RECIPE, make_run, right, trajectory, wrong

Row = dict[str, Any]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs"), sft=2, rl=6, tasks=20)


def rows(run: Path) -> list[Row]:
    with RunStore.open(run, reading=True) as store:
        return [row for step in store.rollout_steps() for row in store.rollouts(step)]


def named(found: list[Row]) -> list[tuple[int, int, int]]:
    return [(row["step"], row["group_index"], row["sample"]) for row in found]


def test_all_rollouts_the_newest_first(whole: Path) -> None:
    answer = rollouts(whole, Wanted(), limit=1000)
    found, in_all = answer.rows, answer.in_all
    expected = sorted(rows(whole), key=lambda row: (-row["step"], row["group_index"], row["sample"]))
    assert named(found) == named(expected)
    assert in_all == len(expected) == 6 * 16


def test_pages_are_parts_of_the_whole(whole: Path) -> None:
    found = rollouts(whole, Wanted(), limit=1000).rows
    parts = [rollouts(whole, Wanted(), limit=40, offset=at) for at in (0, 40, 80, 120)]
    assert [row for part in parts for row in part.rows] == found
    assert {part.in_all for part in parts} == {96}


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [
        (Wanted(text=r"#### \d{3}"), lambda row: re.search(r"#### \d{3}", row["completion"])),
        (Wanted(text=r"What is 2\d", inside="prompt"), lambda row: re.search(r"What is 2\d", row["prompt"])),
        (Wanted(text="is not", inside="score_explanation"), lambda row: "is not" in row["score_explanation"]),
        (Wanted(status="ok"), lambda row: row["score_status"] == "ok"),
        (Wanted(status="wrong", stop="length"), lambda row: row["stop_reason"] == "length"),
        (Wanted(first=4, last=5), lambda row: 4 <= row["step"] <= 5),
        (Wanted(last=4), lambda row: row["step"] <= 4),
        (Wanted(task="sum-17"), lambda row: row["task_key"] == "sum-17"),
        (Wanted(stage="rl"), lambda row: True),
        (Wanted(stage="sft"), lambda row: False),
    ],
)
def test_what_fits(whole: Path, wanted: Wanted, fits: Any) -> None:
    answer = rollouts(whole, wanted, limit=1000)
    found, in_all = answer.rows, answer.in_all
    expected = [row for row in rows(whole) if fits(row)]
    assert sorted(named(found)) == named(expected)
    assert in_all == len(expected)


def test_a_query_as_parameters_of_an_address() -> None:
    assert Wanted().given() == {}
    assert Wanted(text="a", first=3, order="longest").given() == {"text": "a", "first": "3", "order": "longest"}


def test_an_invalid_expression_is_refused(whole: Path) -> None:
    with pytest.raises(UserError, match="not a regular expression"):
        rollouts(whole, Wanted(text="(a"), limit=10)


def test_quotes_are_only_text(whole: Path) -> None:
    hostile = Wanted(text="'; DROP TABLE x; --", task="' OR ''='", stage='"', stop="''")
    assert rollouts(whole, hostile, limit=10) == Found([], 0)


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five rollouts that differ in everything that rollouts can be ordered by."""
    written = ["aaaa", "aaaa", "b", "cc", "ddd"]
    scores = [right("a"), wrong("a", "b"), None, Score(value=0.5, status="ok"), Score(value=-1.0, status="wrong")]
    made = [
        trajectory(completion=text, score=score, sample=i)
        for i, (text, score) in enumerate(zip(written, scores, strict=True))
    ]
    entropy = [0.5, 0.1, 0.9, 0.2, 0.3]
    columns = [{"entropy": np.full(len(text), e, np.float32)} for text, e in zip(written, entropy, strict=True)]
    with RunStore.create(tmp_path_factory.mktemp("runs"), "ordered", RECIPE) as store:
        dropped = [None, "too easy", None, None, None]
        store.write_rollouts(1, rollout_rows(made, stage="rl", groups=[0] * 5, dropped=dropped, columns=columns))
        return store.folder


@pytest.mark.parametrize(
    ("order", "samples"),
    [
        ("newest", [0, 1, 2, 3, 4]),
        ("oldest", [0, 1, 2, 3, 4]),
        ("highest", [0, 3, 1, 4, 2]),
        ("lowest", [4, 1, 3, 0, 2]),
        ("longest", [0, 1, 4, 3, 2]),
        ("shortest", [2, 3, 4, 0, 1]),
        ("uncertain", [2, 0, 4, 3, 1]),
        ("repeated", [0, 1, 3, 2, 4]),  # those of the same number by a hash of the text
        ("unlikely", [0, 3, 1, 4, 2]),
        ("together", [1, 0, 2, 3, 4]),
    ],
)
def test_orders(ordered: Path, order: str, samples: list[int]) -> None:
    found = rollouts(ordered, Wanted(order=order), limit=10).rows
    assert [row["sample"] for row in found] == samples


def test_the_least_likely_comes_first(ordered: Path) -> None:
    """The one token of the third has a log-probability of -2, the others have -1.05 on average."""
    found = rollouts(ordered, Wanted(order="surprising"), limit=10).rows
    assert found[0]["sample"] == 2
    found = rollouts(ordered, Wanted(order="likely"), limit=10).rows
    assert found[-1]["sample"] == 2


def test_every_order_is_tried() -> None:
    [mark] = [mark for mark in test_orders.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    assert {order for order, _ in mark.args[1]} | {"surprising", "likely"} == set(ORDERS)


def test_how_often_a_text_was_written_is_counted(ordered: Path) -> None:
    found = rollouts(ordered, Wanted(order="repeated"), limit=10).rows
    assert [row["written"] for row in found] == [2, 2, 1, 1, 1]


def test_unscored_and_dropped(ordered: Path) -> None:
    def samples(wanted: Wanted) -> list[int]:
        return [row["sample"] for row in rollouts(ordered, wanted, limit=10).rows]

    assert samples(Wanted(status="none")) == [2]
    assert samples(Wanted(kept="dropped")) == [1]
    assert samples(Wanted(kept="kept")) == [0, 2, 3, 4]


def test_groups_of_a_step(ordered: Path) -> None:
    [group] = questions.groups(ordered, 1)
    assert group["size"] == 5
    assert group["reward"] == pytest.approx((1.0 + 0.0 + 0.5 - 1.0) / 4)
    assert group["spread"] == pytest.approx(np.std([1.0, 0.0, 0.5, -1.0]))
    assert [a["status"] for a in group["rollouts"]] == ["ok", "wrong", None, "ok", "wrong"]
    assert [a["dropped"] for a in group["rollouts"]] == [None, "too easy", None, None, None]
    assert questions.groups(ordered, 2) == []


def test_shares_of_correct_rollouts(whole: Path) -> None:
    """Steps are merged in pairs, and each cell is the share of the rollouts in both."""
    found = questions.solved(whole, "domain", most_rows=5, most_columns=3)
    assert found["columns"] == [(3, 4), (5, 6), (7, 8)]
    [row] = found["rows"]
    counts: Counter[int] = Counter()
    for rollout in rows(whole):
        counts[(rollout["step"] - 3) // 2] += rollout["score_status"] == "ok"
    assert row["key"] == "sums"
    assert row["cells"] == [{"share": counts[i] / 32, "scored": 32} for i in range(3)]


def test_tasks_sampled_in_most_steps_come_first(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "tasks", RECIPE) as store:
        for step, keys in enumerate((["a", "b"], ["b"], ["c", "b"], ["c"]), start=1):
            made = [trajectory(key=key, score=right("5") if key == "b" else wrong("1", "5")) for key in keys]
            store.write_rollouts(step, rollout_rows(made))
    found = questions.solved(store.folder, "task", most_rows=2, most_columns=10)
    assert [row["key"] for row in found["rows"]] == ["b", "c"]
    assert found["in_all"] == 3
    one, none = {"share": 1.0, "scored": 1}, {"share": 0.0, "scored": 1}
    assert [row["cells"] for row in found["rows"]] == [[one, one, one, None], [None, None, none, none]]


def test_errors_are_not_wrong_answers(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "errors", RECIPE) as store:
        made = [trajectory(score=right("5")), trajectory(score=Score(value=0.0, status="error"), sample=1)]
        store.write_rollouts(1, rollout_rows(made))
    [row] = questions.solved(store.folder, "task", most_rows=2, most_columns=10)["rows"]
    assert row["cells"] == [{"share": 1.0, "scored": 1}]


def test_held_out_answers_by_task(whole: Path) -> None:
    with RunStore.open(whole, reading=True) as store:
        expected = {row["task_key"]: row["completion"] for row in store.evaluation_rows(0, "before")}
    found = questions.answers(whole, 0, "before")
    assert {key: row["completion"] for key, row in found.items()} == expected
    assert len(found) == 20
    assert questions.answers(whole, 0, "another") == {}


def test_all_answers_to_a_task(whole: Path) -> None:
    tried, answered, _ = questions.history(whole, "sum-1003")
    assert tried == []
    assert [(row["step"], row["evaluation"]) for row in answered] == [(0, "before"), (2, "sft"), (8, "rl")]
    tried, answered, _ = questions.history(whole, "sum-13")
    assert named(tried) == [(3, 1, i) for i in range(4)]
    assert answered == []


def test_a_run_without_rollouts_has_none(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "empty", RECIPE) as store:
        run = store.folder
    assert rollouts(run, Wanted(), limit=5) == Found([], 0)
    assert questions.groups(run, 1) == []
    assert questions.group(run, 1, 0) == []
    nothing = {"rows": [], "columns": [], "in_all": 0, "left_out": 0}
    assert questions.solved(run, "task", most_rows=5, most_columns=5) == nothing
    assert questions.history(run, "x") == ([], [], 0)


@pytest.mark.parametrize(
    ("review", "fits"),
    [
        ("truncated", lambda row: row["stop_reason"] == "length"),
        ("unlikely", lambda row: row["score_status"] == "ok"),
        ("likely", lambda row: row["score_status"] == "wrong"),
        ("unscored", lambda row: False),
        ("disagreement", lambda row: False),
    ],
)
def test_rollouts_for_review(whole: Path, review: str, fits: Any) -> None:
    answer = rollouts(whole, Wanted(review=review), limit=1000)
    found, in_all = answer.rows, answer.in_all
    expected = [row for row in rows(whole) if fits(row)]
    assert sorted(named(found)) == named(expected) and in_all == len(expected)
    assert review in REASONS


def test_every_reason_is_tried() -> None:
    [mark] = [m for m in test_rollouts_for_review.pytestmark if m.name == "parametrize"]  # type: ignore[attr-defined]
    assert {review for review, _ in mark.args[1]} == set(REASONS)


def test_unscored_rollouts_and_a_grader_that_disagrees_with_itself(ordered: Path) -> None:
    """Of five rollouts of a task the third has no score, and the first two have one text with two scores."""

    def samples(review: str) -> list[int]:
        return [row["sample"] for row in rollouts(ordered, Wanted(review=review), limit=10).rows]

    assert samples("unscored") == [2]
    assert samples("disagreement") == [0, 1]


def test_rollouts_that_are_noted(ordered: Path) -> None:
    places = [Rollout(1, 0, 3), Rollout(1, 0, 1), Rollout(7, 0, 0)]
    answer = rollouts(ordered, Wanted(review="noted"), limit=10, only=places)
    found, in_all = answer.rows, answer.in_all
    assert (named(found), in_all) == ([(1, 0, 1), (1, 0, 3)], 2)
    assert rollouts(ordered, Wanted(review="noted"), limit=10) == Found([], 0)


def test_what_matches_is_marked_as_the_database_matches() -> None:
    """At a word's end, in lines, with groups of its own, nothing, everything, and in order."""
    texts = ["a cat, cat", "no", "CAT", "catcat", ""]
    assert questions.matches(texts, "(c)at$") == [
        [("a cat, ", False), ("cat", True)],
        [("no", False)],
        [("CAT", False)],
        [("cat", False), ("cat", True)],
        [],
    ]
    assert questions.matches(["xaax"], "a") == [[("x", False), ("a", True), ("a", True), ("x", False)]]
    assert questions.matches(["x\\1y"], r"\\") == [[("x", False), ("\\", True), ("1y", False)]]
    assert questions.matches([], "a") == []
    for text in ("abc", "<b>&amp;</b>", "\ud7ff\n\t"):
        assert "".join(part for part, _ in questions.matches([text], "b|x*")[0]) == text
