"""Completions of a task and of its shuffled copy."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from posttrain.components.rollouts import Shuffled
from posttrain.components.rollouts.shuffled import ShuffledCopies
from posttrain.errors import UserError
from posttrain.types import Group, Task
from tests.builders import ScriptedSampler, score

STORY = Task(key="s", prompt="A then B?", answer="B", fields={"shuffled": "B then A?"})


def collected(task: Task, values: Sequence[float]) -> list[Group]:
    """The groups, whose rollouts get these scores in the order of sampling."""
    left = iter(values)

    async def scorer(group: Group) -> Group:
        return replace(group, trajectories=tuple(t.scored(score(next(left))) for t in group))

    rollout = ShuffledCopies(n=3, copies=2)
    return asyncio.run(rollout.collect_scored(task, {"policy": ScriptedSampler()}, scorer))


def test_copies_are_scored_and_recorded_but_not_trained() -> None:
    own, copy = collected(STORY, [1, 1, 0, 1, 0])
    assert [len(own), len(copy)] == [3, 2]
    assert all(t.fact(Shuffled) == Shuffled(accuracy=0.5) for t in own)
    assert all(t.num_trained and t.learners == {"policy"} for t in own)
    assert not any(t.num_trained for t in copy) and copy.key == "s/shuffled"
    assert {t.task.prompt for t in copy} == {"B then A?"} and {t.task.answer for t in copy} == {"B"}
    assert all(s.logp is not None for t in copy for s in t.segments if s.actor == "policy")


def test_a_task_without_order_has_no_copy() -> None:
    (own,) = collected(Task(key="c", prompt="how many?", answer="2"), [1, 0, 0])
    assert all(t.fact(Shuffled) is None for t in own)


def test_one_of_several_copies_is_drawn() -> None:
    several = replace(STORY, fields={"shuffled": ["first?", "second?"]})
    _, copy = collected(several, [1] * 5)
    assert {t.task.prompt for t in copy} < {"first?", "second?"}


@pytest.mark.parametrize(
    ("fields", "match"),
    [({}, "none of the 1 tasks has a field 'shuffled'"), ({"shuffled": 3}, "is 3; it must be the prompt")],
)
def test_refused_before_sampling(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(UserError, match=match):
        ShuffledCopies().check([Task(key="t", prompt="?", fields=fields)])
