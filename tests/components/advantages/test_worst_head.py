"""One head for the whole batch in place of the worst of each rollout."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.gae import GAE
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.worst_head import WorstHead
from posttrain.components.rewards.robust import Robust
from posttrain.errors import UserError
from posttrain.types import Batch, Group
from tests.builders import batch

HEADS = [[4.0, 0.0], [0.0, 6.0]]
"""Of two rollouts; the second head is worse in the first, the first in the second, and in the mean: 2 against 3."""


def scored(alpha: float) -> Batch:
    reward = Robust(heads=2, alpha=alpha, nominal="mean")
    scores = [reward.of_outputs(np.array([*row, 0.0, 0.0], np.float32)) for row in HEADS]
    given = batch([[s.value for s in scores]], token_rewards=[[0.0, s.value] for s in scores])
    trajectories = tuple(t.scored(s) for t, s in zip(given.trajectories, scores, strict=True))
    return replace(given, groups=(Group(trajectories=trajectories),))


def test_all_rollouts_have_the_head_that_is_worst_on_average() -> None:
    """Alpha 0.5, nominal 2 and 3: by sample 1 and 1.5; by the first head 3 and 1.5, whose mean is 2.25."""
    given = scored(0.5)
    assert [float(r[-1]) for r in given.token_rewards] == [1.0, 1.5]
    _, credit = WorstHead(advantage=GroupMean(scale="none"), alpha=0.5)({}, given)
    assert [a.tolist() for a in credit.advantages] == [[0.75, 0.75], [-0.75, -0.75]]
    assert credit.metrics["worst_head"] == 0.0 and credit.metrics["worst_head_reward"] == 2.0


def test_alpha_one_changes_nothing_and_neither_does_a_score_without_heads() -> None:
    inner = GroupMean(scale="none")
    for given, alpha in ((scored(1.0), 1.0), (batch([[1.0, 0.0]]), 0.4)):
        for one, other in zip(
            WorstHead(advantage=inner, alpha=alpha)({}, given)[1].advantages,
            inner({}, given)[1].advantages,
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)


def test_another_alpha_than_the_rewards_is_reported() -> None:
    with pytest.raises(UserError, match=r"advantage.alpha=0.4 and the reward's alpha differ"):
        WorstHead(advantage=GAE())({}, scored(0.5))
