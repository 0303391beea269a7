"""A generator's file: its rows, that tasks can be read from it, and that a killed generation goes on."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from posttrain.components.annotators.noise import Noise
from posttrain.components.annotators.reversal import Reversal
from posttrain.components.search import Found, Search
from posttrain.components.search.best_of import BestOf
from posttrain.components.search.tree import Tree
from posttrain.components.tasks.files import Files
from posttrain.errors import UserError
from posttrain.evaluation.generation import Find, Rows, generate
from posttrain.types import Score, Segment, Task, Trajectory
from tests.components.search.lines import Lines, Scorer

SCRIPT = {"P:": ["a\nx", "b\ny", "a\nx"], "P:a\n": ["x", "z"], "P:b\n": ["y"]}
SCORER = Scorer({"a\nx": 1.0, "b\ny": 0.5, "a\nz": 0.0})
COLLECT = Tree(iterations=2, samples=3, value_role=None)
TASKS = [Task(key=f"t{i}", prompt="P:", answer="01", domain="d", fields={"hint": [i], "label": 1}) for i in range(5)]


def finder(search: Search, searched: list[str]) -> Find:
    async def find(task: Task) -> tuple[Found, Sequence[Trajectory]]:
        searched.append(task.key)
        found = await search.search(task, {"policy": Lines(SCRIPT)}, SCORER)
        return found, found.trajectories

    return find


def test_rated_rows_are_states_and_rollouts(tmp_path: Path) -> None:
    out = tmp_path / "rated.jsonl"
    done = generate(TASKS[:1], finder(COLLECT, []), Rows(), out, settings={})
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert done == {"tasks": 1, "rollouts": 6, "rows": 8}
    assert [(r["completion"], r["rating"], r["complete"], r["visits"]) for r in rows[:3]] == [
        ("", pytest.approx(4.5 / 6), False, 6),
        ("a\n", pytest.approx(2 / 3), False, 3),
        ("a\nx", 1.0, True, 1),
    ]
    assert rows[0] == {"id": "t0/0", "task": "t0", "hint": [0], "prompt": "P:", "answer": "01", "domain": "d"} | {
        "completion": "", "rating": rows[0]["rating"], "complete": False, "visits": 6
    }  # fmt: skip
    tasks = Files(path=str(out)).load()
    assert [t.rated[0].rating for t in tasks] == [row["rating"] for row in rows]
    assert all(t.prompt == "P:" and t.answer == "01" and not t.demonstrations for t in tasks)
    assert tasks[0].fields["complete"] is False and tasks[2].fields["complete"] is True


def test_demonstrations_are_the_best_different_ones(tmp_path: Path) -> None:
    search = BestOf(n=3, value_role=None)
    for most, at_least, expected in ((1, 1.0, ("a\nx",)), (3, 0.5, ("a\nx", "b\ny")), (3, 2.0, None)):
        out = tmp_path / f"shown-{most}-{at_least}.jsonl"
        rows = Rows(kind="demonstrations", at_least=at_least, most=most)
        done = generate(TASKS[:1], finder(search, []), rows, out, settings={})
        assert done["rows"] == (expected is not None)
        if expected:
            [task] = Files(path=str(out)).load()
            assert task.demonstrations == expected and task.key == "t0" and task.fields["hint"] == [0]


@pytest.mark.parametrize("torn", [False, True])
def test_a_killed_generation_goes_on(tmp_path: Path, torn: bool) -> None:
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    generate(TASKS, finder(COLLECT, []), Rows(), whole, settings={"seed": 0}, at_once=2)

    def pull_the_plug(done: object) -> None:
        raise KeyboardInterrupt

    first: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        generate(TASKS, finder(COLLECT, first), Rows(), cut, settings={"seed": 0}, at_once=2, progress=pull_the_plug)
    part = tmp_path / "cut.jsonl.part"
    if torn:
        part.write_bytes(part.read_bytes() + b'{"id": "half a ro')
    again: list[str] = []
    done = generate(TASKS, finder(COLLECT, again), Rows(), cut, settings={"seed": 0}, at_once=2)
    assert cut.read_bytes() == whole.read_bytes()
    assert (first, again) == (["t0", "t1"], ["t2", "t3", "t4"])
    assert done["tasks"] == 5 and done["rows"] == len(whole.read_text().splitlines())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.jsonl", "whole.jsonl"]


def test_what_cannot_go_on_is_reported(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    find = finder(COLLECT, [])

    def pull_the_plug(done: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(TASKS, find, Rows(), out, settings={"seed": 0}, at_once=2, progress=pull_the_plug)
    with pytest.raises(UserError, match="begun with other settings"):
        generate(TASKS, find, Rows(), out, settings={"seed": 1})
    generate(TASKS, find, Rows(), out, settings={"seed": 0})
    with pytest.raises(UserError, match="exists already"):
        generate(TASKS, find, Rows(), out, settings={"seed": 0})


def test_failed_scores_make_no_rows(tmp_path: Path) -> None:
    async def find(task: Task) -> tuple[Found, Sequence[Trajectory]]:
        found = await BestOf(n=3, value_role=None).search(task, {"policy": Lines(SCRIPT)}, Scorer({"b\ny": 0.5}))
        return found, found.trajectories

    out = tmp_path / "a.jsonl"
    assert generate(TASKS[:1], find, Rows(), out, settings={})["rows"] == 1
    assert asyncio.run(find(TASKS[0]))[0].best.completion == "b\ny"


def written(text: str, *, right: bool, stop: str = "stop") -> Trajectory:
    score = Score(value=float(right), status="ok" if right else "wrong")
    segment = Segment(actor="policy", token_ids=np.arange(len(text)), trained=True, text=text)
    return Trajectory(task=TASKS[0], segments=(segment,), stop_reason=stop, score=score)  # type: ignore[arg-type]


ROLLOUTS = [written("wrong", right=False), written("right", right=True), written("right, at length", right=True)]


def test_checked_rollouts_as_pairs_with_their_origin(tmp_path: Path) -> None:
    found = Found(trajectories=tuple(ROLLOUTS), values=(0.0, 1.0, 1.0))
    [row] = Rows(kind="pairs", writer="pebble").of(TASKS[0], found, ROLLOUTS)
    assert (row["chosen"], row["rejected"], row["id"]) == ("right", "wrong", TASKS[0].key)
    assert row["origin"] == [
        {"writer": "pebble", "sample": 1, "value": 1.0},
        {"writer": "pebble", "sample": 0, "value": 0.0},
    ]
    [row] = Rows(kind="shortest").of(TASKS[0], found, ROLLOUTS)
    assert (row["chosen"], row["rejected"]) == ("right", "right, at length")
    assert Rows(kind="pairs").of(TASKS[0], found, ROLLOUTS[1:]) == []
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [row, {**row, "id": "b", "prompt": "other"}]))
    task = Files(path=str(path)).load()[0]
    assert [(pair.chosen, pair.rejected) for pair in task.preferences] == [("right", "right, at length")]
    assert task.fields["origin"] == row["origin"]


def test_checked_rollouts_to_imitate() -> None:
    found = Found(trajectories=tuple(ROLLOUTS), values=(0.0, 1.0, 1.0))
    [row] = Rows(kind="best_of").of(TASKS[0], found, ROLLOUTS)
    assert (row["demonstrations"], len(row["origin"])) == (["right"], 1)
    assert Rows(kind="modes").of(TASKS[0], found, ROLLOUTS) == []
    both = [*ROLLOUTS, written("<think>so</think>right", right=True)]
    [row] = Rows(kind="modes").of(TASKS[0], found, both)
    assert (row["mode"], row["demonstrations"]) == ("on", ["<think>so</think>right"])


def test_pairs_as_annotators_state_them(tmp_path: Path) -> None:
    out = tmp_path / "annotated.jsonl"
    rows = Rows(kind="pairs", annotators=(Reversal(), Noise(spread=0.0)))
    scored = Scorer({"a\nx": 1.0, "b\ny": 0.0})

    async def find(task: Task) -> tuple[Found, Sequence[Trajectory]]:
        found = await BestOf(n=3, value_role=None).search(task, {"policy": Lines(SCRIPT)}, scored)
        return found, found.trajectories

    generate(TASKS[:1], find, rows, out, settings={})
    wrong, right = (json.loads(line) for line in out.read_text().splitlines())
    assert (wrong["annotator"], right["annotator"]) == ("reversal", "noise")
    assert wrong["chosen"] == right["rejected"] == "b\ny" and wrong["rejected"] == right["chosen"] == "a\nx"
    assert wrong["origin"] == right["origin"][::-1] and wrong["gold_gap"] == -1.0 and wrong["id"] != right["id"]
    assert {task.preferences[0].annotator for task in Files(path=str(out)).load()} == {"reversal", "noise"}
