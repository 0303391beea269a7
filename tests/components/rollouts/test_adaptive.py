import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from posttrain.components.rollouts.adaptive import Adaptive
from posttrain.engines import Sampling
from posttrain.types import Group, Score
from tests.builders import ScriptedSampler, score, task


class Grades:
    """A scorer that gives these values in order, and keeps the sizes of what it scored; None is a failure."""

    def __init__(self, values: Sequence[float | None]) -> None:
        self.values = iter(values)
        self.sizes: list[int] = []

    async def __call__(self, group: Group) -> Group:
        self.sizes.append(len(group))
        given = [next(self.values) for _ in group]
        scores = [Score(value=math.nan, status="error") if value is None else score(value) for value in given]
        return replace(group, trajectories=tuple(t.scored(s) for t, s in zip(group, scores, strict=True)))


def attempted(rollout: Adaptive, values: Sequence[float | None]) -> tuple[Group, ScriptedSampler, list[int]]:
    policy, scorer = ScriptedSampler(version=7), Grades(values)
    [group] = asyncio.run(rollout.collect_scored(task("sum"), {"policy": policy}, scorer))
    return group, policy, scorer.sizes


BALANCED = Adaptive(per_round=4, max_rounds=3, right=2, wrong=2)
POSITIVE = Adaptive(per_round=4, max_rounds=3, right=1, wrong=0)


@pytest.mark.parametrize(
    ("rollout", "values", "rounds"),
    [
        (BALANCED, [1, 0, 1, 0], 1),
        (BALANCED, [1, 0, 0, 0, 0, 0, 0, 1], 2),  # enough of both only when the pool is counted
        (BALANCED, [1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1], 3),  # the cap
        (BALANCED, [1] * 12, 3),
        (BALANCED, [0] * 12, 3),
        (POSITIVE, [0, 0, 0, 1], 1),
        (POSITIVE, [1, 1, 1, 1], 1),
        (POSITIVE, [0] * 4 + [0, 1, 0, 0], 2),
        (POSITIVE, [0] * 12, 3),
    ],
)
def test_rounds_end_by_the_result(rollout: Adaptive, values: list[float], rounds: int) -> None:
    group, policy, sizes = attempted(rollout, values)
    assert sizes == [4] * rounds
    assert len(policy.completions) == 4 * rounds, "nothing is sampled for a task that is done"
    assert group.rewards.tolist() == values, "the whole round is in the pool, in order"


def test_a_score_at_the_threshold_is_not_right() -> None:
    rollout = Adaptive(per_round=1, max_rounds=5, right=1, wrong=0, threshold=0.5)
    assert len(attempted(rollout, [0.4, 0.5, 0.51, 1])[0]) == 3


def test_a_failed_score_is_neither_right_nor_wrong() -> None:
    rollout = Adaptive(per_round=2, max_rounds=4, right=1, wrong=1)
    group, _, sizes = attempted(rollout, [None, 1, None, None, 0, 1])
    assert len(sizes) == 3
    assert [t.score and t.score.status for t in group] == ["error", "ok", "error", "error", "wrong", "ok"]


def test_rollouts_are_numbered_through_and_keep_their_tokens() -> None:
    group, policy, _ = attempted(BALANCED, [0] * 12)
    assert [attempt.sample for attempt in group] == list(range(12))
    prompt = group.trajectories[0].segments[0]
    for attempt, completion in zip(group, policy.completions, strict=True):
        assert attempt.segments[0] is prompt and attempt.segments[1].token_ids is completion.token_ids
        assert (attempt.segments[1].trained, attempt.segments[1].version) == (True, 7)


def test_sampling_reaches_the_sampler_and_another_role_can_write() -> None:
    rollout = Adaptive(per_round=30, max_rounds=1, sampling=Sampling(max_tokens=2, temperature=0.7), role="guide")
    guide = ScriptedSampler()
    [group] = asyncio.run(rollout.collect_scored(task(), {"guide": guide}, Grades([0] * 30)))
    assert max(attempt.num_trained for attempt in group) == 2
    assert rollout.temperature == 0.7
    assert Adaptive(sampling=Sampling(temperature=0)).temperature == 1.0
