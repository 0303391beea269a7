import asyncio
from dataclasses import replace

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.chains import Chains
from posttrain.errors import UserError
from posttrain.types import Group, Task
from tests.builders import trajectory

TASK = Task(key="t", prompt="p", fields={"inputs": ["river", "Eagle"], "outputs": ["2", "3"], "goal": "number"})


def scores(*plans: str, invalid: float = -1.0, of: Task = TASK) -> list[tuple[float, str]]:
    made = []
    for plan in plans:
        prompt, answer = trajectory(2, of=of).segments
        made.append(replace(trajectory(2, of=of), task=of, segments=(prompt, replace(answer, text=plan))))
    found = asyncio.run(Chains(invalid=invalid).score(Group(trajectories=tuple(made)), RewardContext()))
    return [(score.value, score.status) for score in found]


def test_results_are_compared_by_their_characters() -> None:
    """Two vowels in river, three in Eagle; their lengths are 5, and the next numbers 3 and 4."""
    plans = (" vowels > count", " count", " vowels > count > next")
    assert scores(*plans) == [(1.0, "ok"), (0.0, "wrong"), (0.0, "wrong")]


def test_a_plan_is_invalid_where_any_link_or_end_does_not_fit() -> None:
    plans = (" vowels", " double > next", " count > upper > count", " vowels > counts", " count > double > double", "")
    assert scores(*plans) == [(-1.0, "wrong")] * len(plans)
    assert scores(*plans, invalid=0.0) == [(0.0, "wrong")] * len(plans)


def test_similar_results_are_rewarded_in_part() -> None:
    """``vowels`` gives ``ie``, which has one character in common with ``ei`` in order: 2 of 4."""
    of = replace(TASK, fields={"inputs": ["river"], "outputs": ["ei"], "goal": "text"})
    assert scores(" vowels", " vowels > mirror", of=of) == [(0.5, "wrong"), (1.0, "ok")]


def test_a_task_without_references_is_refused() -> None:
    with pytest.raises(UserError, match="cannot score a plan"):
        Chains().check([Task(key="t", prompt="p", fields={"inputs": ["a"], "outputs": [], "goal": "text"})])
