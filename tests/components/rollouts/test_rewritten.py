"""Rewritings: when they are asked for, which are used, and with which old log-probabilities."""

import asyncio
import math
from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.rollouts.rewritten import Rewritten
from posttrain.errors import UserError
from posttrain.types import Group, Score, Task
from tests.builders import ScriptedSampler, info_of, score

SUM = Task(key="sum", prompt="2+2=", answer="4", demonstrations=("2 and 2 is 4",))
SHORT = Rewritten(n=3, tries=6, request="[{solution}] {question}")
Value = float | None


def collected(rollout: Rewritten, own: list[Value], rewritten: list[Value], of: Task = SUM) -> tuple[Group, list[int]]:
    """The group, and how many were scored at a time; None is a failed score."""
    policy, sizes = ScriptedSampler("policy"), list[int]()
    values = iter([*own, *rewritten])

    async def scorer(group: Group) -> Group:
        sizes.append(len(group))
        given = [next(values) for _ in group]
        scores = [Score(value=math.nan, status="error") if g is None else score(g) for g in given]
        return replace(group, trajectories=tuple(t.scored(s) for t, s in zip(group, scores, strict=True)))

    [group] = asyncio.run(rollout.collect_scored(of, {"policy": policy}, scorer))
    return group, sizes


def usable(rollout: Rewritten) -> int:
    """How many of the scripted rewritings end by themselves."""
    return collected(rollout, [0.0] * 3, [0.0] * 6)[1][-1]


def test_a_correct_rewriting_takes_the_place_of_the_last_failure() -> None:
    count = usable(SHORT)
    assert count > 1
    group, sizes = collected(SHORT, [0, 0, 0], [0.0] + [1.0] * (count - 1))
    assert sizes == [3, count] and [t.sample for t in group][:2] == [0, 1] and len(group) == 3
    new = group.trajectories[-1]
    assert new.solved and new.sample >= 3 and new.given
    assert info_of(new) == {"rewritten_from": "[2 and 2 is 4] 2+2="}
    prompt, own = new.segments
    assert bytes(prompt.token_ids[1:].tolist()) == b"2+2=" and own.trained
    assert own.logp is None and np.isnan(new.behavior_logp).all(), "the ratio is 1 at the first update"


def test_the_true_ratio_keeps_the_probabilities_of_its_sampling() -> None:
    true = replace(SHORT, ratio="true")
    group, _ = collected(true, [0, 0, 0], [1.0] * usable(true))
    own = group.trajectories[-1].segments[-1]
    assert own.actor == "policy" and own.logp is not None and np.isfinite(group.trajectories[-1].behavior_logp).all()


def test_several_failures_are_replaced_and_failed_scores_stay() -> None:
    two = replace(SHORT, replaced=2)
    group, _ = collected(two, [0, None, 0], [1.0] * usable(two))
    assert group.trajectories[0].sample == 1 and sum(t.solved for t in group) == 2


@pytest.mark.parametrize(
    ("own", "rewritten", "asked"),
    [([0, 1, 0], [], 1), ([None, None, None], [], 1), ([0, 0, 0], [0] * 6, 2), ([0, 0, 0], [None] * 6, 2)],
)
def test_otherwise_the_group_is_as_it_was(own: list[Value], rewritten: list[Value], asked: int) -> None:
    group, sizes = collected(SHORT, own, rewritten)
    assert len(sizes) == asked and [t.sample for t in group] == [0, 1, 2]


def test_a_task_without_a_solution_is_not_rewritten() -> None:
    bare = replace(SUM, answer=None, demonstrations=())
    assert collected(SHORT, [0, 0, 0], [], bare)[1] == [3]
    with pytest.raises(UserError, match="needs demonstrations"):
        SHORT.check([bare])
    SHORT.check([bare, SUM])
    for request in ("{solution}", "{question}", "{question} {solutoin} {answer}"):
        with pytest.raises(ValidationError):
            Rewritten(request=request)
