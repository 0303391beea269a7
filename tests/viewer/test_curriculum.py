"""Choices and pairs of a made-up run in the viewer, beside the same worked out by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posttrain.components.curricula import Pick
from posttrain.components.rollouts import Hint
from posttrain.runs.store import RunStore, rollout_rows
from posttrain.stages.pairs import Side
from posttrain.types import Fact, Score, Task, Trajectory
from posttrain.viewer.curriculum import ancestry, curriculum, pairs, parted
from posttrain.viewer.picks import columns_of
from posttrain.viewer.planes import front, simplex
from tests.runs.made_runs import RECIPE, right, trajectory, wrong
from tests.viewer.looking import Page, browser

# Task, reason, weight and number of correct rollouts of two, of both choices of each step.
CHOICES = [
    [("a", "easy", 0.75, 2), ("b", "hard", 0.25, 0)],
    [("a", "easy", 0.80, 1), ("c", "easy", 0.60, 2)],
    [("b", "hard", 0.30, 1), ("d", "hard", 0.10, 0)],
]
LINEAGE = {"parent": "a", "writer": "rule", "step": 2, "depth": 1}


def group(key: str, facts: tuple[Fact, ...], correct: int) -> list[Trajectory]:
    made = [trajectory(key=key, prompt=f"{key}=", sample=i, facts=facts) for i in range(2)]
    return [replace(t, score=right("5") if i < correct else wrong("6", "5")) for i, t in enumerate(made)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with RunStore.create(tmp_path_factory.mktemp("runs"), "mopps", RECIPE) as store:
        for step, own in enumerate(CHOICES, 1):
            rollouts: list[Trajectory] = []
            for key, reason, weight, correct in own:
                fields = {"lineage": LINEAGE} if key == "d" else {}
                facts = Pick(task=Task(key=key, prompt="", fields=fields), weight=weight, reason=reason).facts
                hint = (Hint(hint_share=0.5),) if step == 3 else ()
                rollouts += group(key, (*facts, *hint), correct)
            groups = [i // 2 for i in range(len(rollouts))]
            store.write_rollouts(step, rollout_rows(rollouts, stage="rl", groups=groups))
            store.log_metrics(
                step, "rl", step, {"curriculum/unseen": 0.5, "probe_tokens": 10.0, "sampled_tokens": 40.0}
            )
        (store.folder / "checkpoints" / "step_000003_0").mkdir(parents=True)
        state = {"memory": {"pool": {"tasks": 10}}}
        (store.folder / "checkpoints" / "step_000003_0" / "state.json").write_text(json.dumps(state))
        return store.folder


def test_a_pick_without_anything_to_record_has_no_facts() -> None:
    task = Task(key="a", prompt="1+1=")
    assert Pick(task=task).facts == ()
    [fact] = Pick(task=replace(task, fields={"lineage": LINEAGE})).facts
    assert fact.record() == {"lineage": LINEAGE}


def test_the_choices_by_hand(run: Path) -> None:
    page = curriculum("mopps-1", run)
    assert (page["totals"]["choices"], page["totals"]["tasks"], page["pool"]) == (6, 4, 10)
    assert (page["unseen"], page["probe_tokens"]) == (7, 30.0), "ten less three; the fourth is born"
    assert page["arms_by"] == "reason" and page["columns"] == [(1, 1), (2, 2), (3, 3)]
    easy, hard = page["arms"]
    assert (easy["arm"], easy["choices"], easy["share"], easy["solved"]) == ("easy", 3, 0.5, pytest.approx(5 / 6))
    assert (easy["shares"], easy["rates"]) == ([0.5, 1.0, 0.0], [1.0, 0.75, None])
    assert (hard["shares"], hard["rates"]) == ([0.5, 0.0, 1.0], [0.0, None, 0.25])
    medians = [(row["chosen"][1], row["seen"][1]) for row in page["difficulty"]]
    assert medians == [(0.5, 0.5), (0.75, 0.5), (0.25, 0.5)], "of all: a 1 b 0; a .5 b 0 c 1; a .5 b .5 c 1 d 0"
    weights = [(row["weight"], row["solved"]) for row in page["predictions"]]
    assert weights == [(0.1, 0.0), (0.25, 0.0), (0.3, 0.5), (0.6, 1.0), (0.75, 1.0), (0.8, 0.5)]
    first = page["tasks"][0]
    assert (first["key"], first["visits"], first["last"], first["newest"], first["reason"]) == ("b", 2, 3, 0.5, "hard")
    assert [row["key"] for row in curriculum("mopps-1", run, "low")["tasks"]] == ["d", "b", "a", "c"]
    assert [(row["share"], row["rollouts"], row["solved"]) for row in page["hints"]] == [(0.5, 4, 0.25)]
    [born] = page["born"]
    assert (born["key"], born["parent"], born["depth"], page["parents"]) == ("d", "a", 1, {"a": "a="})


def test_the_page(run: Path) -> None:
    looking = browser(run)
    page = Page(looking.get("/runs/mopps-1/curriculum").text)
    assert "6choices in 3 steps" in page.text and "7never chosen" in page.text
    labels = [a["aria-label"] for tag, a in page.elements if tag == "svg"]
    assert labels == ["Difficulty", "Unseen", "Probe tokens"]
    inner = [address for address in page.links() if address.startswith("/runs/")]
    assert all(looking.get(address.partition("#")[0]).status_code == 200 for address in set(inner))
    assert looking.get("/runs/mopps-1/curriculum?order=none").status_code == 400
    assert "learned from no pairs" in Page(looking.get("/runs/mopps-1/pairs").text).text


def test_columns_are_merged_where_there_are_many() -> None:
    assert columns_of([1, 2, 3, 4, 5], 2) == [(1, 3), (4, 5)] and columns_of([]) == []


def test_born_tasks_stand_below_their_parents() -> None:
    def born(key: str, parent: Any) -> dict[str, Any]:
        return {"key": key, "lineage": json.dumps({"parent": parent})}

    rows = [born("x", "data"), born("y", "data"), born("z", "x"), born("w", "z"), {"key": "v", "lineage": '"odd"'}]
    assert [(r["key"], r["level"]) for r in ancestry(rows)] == [("x", 0), ("z", 1), ("w", 2), ("y", 0), ("v", 0)]


@pytest.mark.parametrize(
    ("chosen", "rejected", "alike"), [("12; 3", "12; 4", "12; "), ("1", "12", "1"), ("", "1", ""), ("1", "1", "1")]
)
def test_where_two_texts_part(chosen: str, rejected: str, alike: str) -> None:
    found = parted(chosen, rejected)
    assert (found["alike"], found["alike"] + found["chosen"], found["alike"] + found["rejected"]) == (
        alike,
        chosen,
        rejected,
    )


def test_three_arms_are_points_of_a_triangle() -> None:
    shares = ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0])
    found = simplex([{"arm": name, "shares": own} for name, own in zip("abc", shares, strict=True)])
    assert found is not None and simplex([]) is None
    (x1, y1), (x2, y2), (x3, y3) = found["points"]
    assert (y1, x3) == (y2, (x1 + x2) / 2) and y3 < y1, "each is a corner, the third above the middle of the others"


def test_the_front_has_a_line_for_each_evaluation(tmp_path: Path) -> None:
    ratings = {"before": {"97 -26": (1.0, 0.5), "97 26": (0.5, 1.0)}, "rl": {"97 -26": (3.0, 1.0), "97 26": (1.0, 3.0)}}
    with RunStore.create(tmp_path, "dpa", RECIPE) as store:
        for step, (name, own) in enumerate(ratings.items()):
            answers = [
                trajectory(prompt=f"{way}\nList:", key=way, score=replace(right("5"), parts=parts(*both)))
                for way, both in own.items()
            ]
            summary = {"accuracy": 1.0, "accuracy_interval": [0.3, 1.0], "tasks": 2, "correct": 2, "errors": 0}
            store.write_evaluation(step, name, rollout_rows(answers, stage=name), summary | {"verifier": "numeric"})
        folder = store.folder
    found = front(folder)
    assert found is not None and (found["across"], found["up"]) == ("help", "length")
    assert found["lines"] == {name: list(ways.items()) for name, ways in ratings.items()}
    page = Page(str(found["svg"]))
    assert len([tag for tag, _ in page.elements if tag == "circle"]) == 4


def parts(helpful: float, long: float) -> dict[str, Score]:
    return {"help": Score(value=helpful, status="ok"), "length": Score(value=long, status="ok")}


def test_pairs(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "dpo", RECIPE) as store:
        for step, margin in ((1, 0.25), (2, 0.75)):
            sides: list[Any] = [("chosen", "12; 3"), ("rejected", "12; 4")]
            both = [
                trajectory(
                    key="a", completion=text, sample=i, facts=(Side(side=side, rule="first_pit", margin=margin),)
                )
                for i, (side, text) in enumerate(sides)
            ]
            store.write_rollouts(step, rollout_rows(both, stage="dpo", groups=[0, 0]))
        store.log_event(
            0, "note", "stage dpo: 2 pairs by 'first_pit' from 1 of 3 tasks; 2 without: no incorrect answer"
        )
        folder = store.folder
    page = pairs("dpo-1", folder)
    [rule] = page["rules"]
    assert (rule["rule"], rule["pairs"], rule["different"], rule["margin"][1]) == ("first_pit", 2, 1, 0.5)
    assert [(row["margin"], row["parts_at"], row["alike"]) for row in page["pairs"]] == [
        (0.25, 4, "12; "),
        (0.75, 4, "12; "),
    ]
    shown = Page(browser(folder).get("/runs/dpo-1/pairs").text)
    assert "2 without: no incorrect answer" in shown.text, shown.text
    assert "by first_pit, margin 0.250, parts after 4" in shown.text, shown.text
    assert "No rollout has been scored yet" in Page(browser(folder).get("/runs/dpo-1/curriculum").text).text
