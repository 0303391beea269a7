"""Visits of a search that only counts visits, on toy trees; which tasks are kept; steps of a model."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from posttrain.components.rewards.regex import Regex
from posttrain.components.selections._visits import Visited, visits_to_solve
from posttrain.components.selections.by_visits import ByVisits
from posttrain.types import Task
from tests.builders import ScriptedSampler

Way = tuple[int, ...]


def visits(target: Way, *, branches: int = 2, depth: int = 5, budget: int = 50) -> int:
    """K of a tree in which the default action is 0, and the taken child is the first."""

    async def expand(way: Way) -> list[Visited[Way]]:
        return [Visited(state=(*way, i), ended=len(way) + 1 == depth) for i in range(branches)]

    async def solves(node: Visited[Way]) -> bool:
        return (*node.state, *[0] * (depth - len(node.state))) == target

    root: Visited[Way] = Visited(state=())
    return asyncio.run(visits_to_solve(root, expand=expand, solves=solves, budget=budget, uniform=lambda: 0.0))


def only(place: int) -> Way:
    """The default action everywhere but at one place."""
    return tuple(int(i == place) for i in range(5))


def test_visits_grow_with_the_depth_of_the_first_other_action() -> None:
    assert [visits(only(place)) for place in range(5)] == [2, 5, 11, 23, 47]
    assert visits((0,) * 5) == 1, "what the first rollout solves"


def test_a_task_that_is_never_solved_has_one_more_than_the_budget() -> None:
    assert visits((9,) * 5) == 51 and visits((9,) * 5, budget=7) == 8
    assert visits(only(4), budget=46) == 47, "solved in the 47th visit, and not within 46"


@pytest.mark.parametrize(
    ("settings", "keys"), [({}, "cd"), ({"unsolved": False}, "c"), ({"threshold": 1}, "bcd"), ({"threshold": 50}, "d")]
)
def test_what_is_kept(settings: dict[str, Any], keys: str) -> None:
    tasks = [Task(key=key, prompt="p") for key in "abcde"]
    chosen = ByVisits(reward=Regex(pattern="x"), **settings).choose(tasks, [1, 5, 6, 51, None])
    assert "".join(task.key for task in chosen.tasks) == keys
    assert "1 could not be scored" in chosen.summary


def measured(pattern: str, uniform: Callable[[], float] | None = None, **settings: Any) -> tuple[Any, int]:
    policy = ScriptedSampler("policy")
    rule = ByVisits(reward=Regex(pattern=pattern), delimiter="q", budget=6, **settings)
    found = asyncio.run(rule.measure([Task(key="t", prompt="p")], {"policy": policy}))
    return found, len(policy.completions)


def test_steps_of_a_model() -> None:
    """The first visit samples three steps; a step without the delimiter is a whole answer, which is verified."""
    assert measured("(?s).*")[0] == [1]
    found, sampled = measured("never")
    assert found == [7] and sampled >= 3
    assert measured("never", k=1, depth=1)[0] == [7]
