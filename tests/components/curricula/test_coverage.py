"""The edge of what is covered: opening, closing, and a new round."""

from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.components.curricula.coverage import Coverage
from posttrain.types import Group, Task
from tests.builders import trajectory

POOL = [
    Task(
        key=f"{program}{line}",
        prompt="p",
        fields={"source": program, "line": line, "parent": line - 1 if line else None},
    )
    for program in "ab"
    for line in range(3)
]


def chosen(curriculum: Coverage, state: Mapping[str, Any], count: int, step: int = 0) -> tuple[Any, list[str]]:
    state, picks = curriculum.select(state, POOL, count, seed=0, step=step)
    return state, [pick.task.key for pick in picks]


def group(key: str, *rewards: float) -> Group:
    task = next(task for task in POOL if task.key == key)
    return Group(key=key, trajectories=tuple(trajectory(reward=r, of=task, sample=i) for i, r in enumerate(rewards)))


def after(curriculum: Coverage, state: Any, *groups: Group) -> Any:
    """The state after the outcomes of a step that had all tasks of the groups."""
    state, _ = curriculum.select(state, POOL, 1, seed=0, step=0)
    places = {task.key: place for place, task in enumerate(POOL)}
    return curriculum.observe({**state, "asked": places}, groups)


def opened(curriculum: Coverage, state: Any) -> Sequence[str]:
    return sorted(set(chosen(curriculum, state, 12)[1]))


def test_first_lines_come_first_and_covering_opens_the_next() -> None:
    curriculum = Coverage(tries=2)
    state = curriculum.start()
    assert opened(curriculum, state) == ["a0", "b0"]
    state = after(curriculum, state, group("a0", 0.0, 1.0), group("b0", 0.4, 0.9))
    assert opened(curriculum, state) == ["a1", "b0"]
    state = after(curriculum, state, group("b0", 0.0))
    assert opened(curriculum, state) == ["a1"], "the other was tried twice"
    assert chosen(curriculum, state, 3)[1] == ["a1"] * 3
    assert curriculum.report(chosen(curriculum, state, 1)[0]) == {"covered": 1.0, "open": 1.0, "rounds": 0.0}


def test_when_nothing_is_open_it_begins_again() -> None:
    curriculum, state = Coverage(tries=1), Coverage().start()
    state = after(curriculum, state, group("a0", 0.0), group("b0", 0.0))
    state, keys = chosen(curriculum, state, 2)
    assert sorted(keys) == ["a0", "b0"] and state["rounds"] == 1 and not state["tries"].any()


def test_without_a_frontier_and_without_closing() -> None:
    assert len(opened(Coverage(order="random"), Coverage().start())) == 6
    kept = Coverage(close=False, tries=1)
    assert opened(kept, after(kept, kept.start(), group("a0", 1.0))) == ["a0", "a1", "b0"]


def test_the_least_tried_come_first() -> None:
    curriculum = Coverage()
    state = after(curriculum, curriculum.start(), group("a0", 0.0))
    assert {chosen(curriculum, state, 1, step=step)[1][0] for step in range(8)} == {"b0"}
