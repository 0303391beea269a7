"""Which rows a repairing stage imitates, on measurements that are written out."""

from dataclasses import replace
from typing import Any

import pytest

from posttrain.components.rewards.match import Match
from posttrain.components.selections import Chosen
from posttrain.components.selections.weak_kinds import WeakKinds
from posttrain.errors import AlarmStop
from posttrain.types import Task

TASKS = [
    Task(key=f"{kind}{i}", prompt="p", domain=kind, demonstrations=("given",)) for i in range(20) for kind in "abc"
]
ORIGIN = [{"writer": "policy", "sample": 2, "value": 1.0}]


def answers(*places: int) -> dict[str, Any]:
    return {str(place): {"text": f"own {place}", "origin": ORIGIN} for place in places}


def choose(measured: Any, tasks: list[Task] = TASKS, **settings: Any) -> Chosen:
    return WeakKinds(reward=Match(), **settings).choose(tasks, measured)


def test_a_kind_at_the_threshold_gives_no_rows() -> None:
    chosen = choose({"scores": {"a": 0.59, "b": 0.6, "c": 0.9}, "answers": {}}, general=0.0)
    assert {task.domain for task in chosen.tasks} == {"a"} and len(chosen.tasks) == 20
    assert chosen.summary.startswith("weak kinds (below 60%): a 59%; others: b 60%, c 90%; 20 rows of weak kinds and 0")


@pytest.mark.parametrize("general", [0.05, 0.1, 0.25, 0.5])
def test_the_share_of_others_is_met_within_one_row(general: float) -> None:
    measured = {"scores": {"a": 0.1, "b": 0.9, "c": 0.9}, "answers": {}}
    chosen = choose(measured, general=general, targets="given")
    others = [task for task in chosen.tasks if task.domain != "a"]
    assert abs(len(others) - general * len(chosen.tasks)) <= 1
    kinds = [task.domain for task in others]
    assert abs(kinds.count("b") - kinds.count("c")) <= 1
    assert all(task.demonstrations == ("given",) for task in others)


def test_others_imitate_the_models_own_best_answer() -> None:
    measured = {"scores": {"a": 0.1, "b": 0.9, "c": 0.9}, "answers": answers(1, 2)}
    chosen = choose(measured, general=0.16)
    others = {task.key: task for task in chosen.tasks if task.domain != "a"}
    assert {key: task.demonstrations for key, task in others.items()} == {"b0": ("own 1",), "c0": ("own 2",)}
    assert all(task.fields["origin"] == ORIGIN for task in others.values())
    assert all("origin" not in task.fields for task in chosen.tasks if task.domain == "a")


def test_without_a_weak_kind_nothing_is_left() -> None:
    assert not choose({"scores": {"a": 0.9, "b": 0.9, "c": 0.9}, "answers": {}}).tasks


def test_tasks_without_a_text_to_imitate_are_left_out() -> None:
    bare = [replace(task, demonstrations=()) if task.key == "a0" else task for task in TASKS]
    assert len(choose({"scores": {"a": 0.1, "b": 0.9, "c": 0.9}, "answers": {}}, bare, general=0.0).tasks) == 19


def test_a_kind_that_could_not_be_scored_is_not_known_to_be_weak() -> None:
    measured: dict[str, Any] = {"scores": {"a": None, "b": 0.1, "c": 0.9}, "answers": {}}
    assert {task.domain for task in choose(measured, general=0.0).tasks} == {"b"}
    with pytest.raises(AlarmStop, match="no rollout could be scored"):
        choose({"scores": {"a": None, "b": None, "c": None}, "answers": {}})
