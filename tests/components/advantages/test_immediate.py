"""Immediate credit of steps; exact gradients on a small tree show why it must be immediate."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.advantages.gae import GAE
from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.immediate import Immediate
from posttrain.components.rewards import SpanRewards
from posttrain.types import Group
from tests.builders import batch


def test_a_step_has_its_own_reward_and_the_outcome_is_the_estimators() -> None:
    """Outcome 1 and 0, three tokens each; the first rollout has steps of 2 and 1 tokens with 0.5 and -0.25."""
    given = batch([[1.25, 0.0]], token_rewards=[[0.0, 0.5, 0.75], [0.0, 0.0, 0.0]])
    first, second = given.trajectories
    fact = SpanRewards(span_rewards=((1, 0.5), (2, -0.25)))
    given = replace(given, groups=(Group(trajectories=(replace(first, facts=(fact,)), second)),))
    estimator = GroupMean(scale="none")
    _, credit = Immediate(advantage=estimator)({}, given)
    assert credit.advantages[0].tolist() == pytest.approx([0.5 + 0.5, 0.5 + 0.5, 0.5 - 0.25])
    assert credit.advantages[1].tolist() == pytest.approx([-0.5] * 3)
    _, plain = estimator({}, batch([[1.0, 0.0]], token_rewards=[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    _, same = Immediate(advantage=estimator)({}, batch([[1.0, 0.0]], token_rewards=[[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    for one, other in zip(plain.advantages, same.advantages, strict=True):
        np.testing.assert_array_equal(one, other)
    assert Immediate(advantage=GAE()).reads == GAE().reads and Immediate(advantage=GAE()).credits_spans


LEAVES = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
"""[first action, second action] the outcome."""


def gradients(prover: np.ndarray, *, k: int = 1, alpha: float = 2.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Exact gradients, of the logits of the first and the second actions, at a flat policy: of the outcome, with
    immediate process advantages of a prover [3, 3] (its chances of the second action), and with them in the returns.
    """

    def best(q: np.ndarray) -> np.ndarray:
        return 1 - (1 - q) ** k

    flat = np.full((3, 3), 1 / 3)
    after_two, after_one = best(LEAVES), best((prover * LEAVES).sum(1))
    start = best(np.array((prover * LEAVES).sum(1).mean()))
    own = (after_one - start, after_two - after_one[:, None])
    outcome, immediate, summed = (np.zeros(12) for _ in range(3))
    for a in range(3):
        for b in range(3):
            first, second = np.zeros(12), np.zeros(12)
            first[:3] = np.eye(3)[a] - flat[0]
            second[3 + 3 * a : 6 + 3 * a] = np.eye(3)[b] - flat[0]
            reward, gains = LEAVES[a, b], (alpha * own[0][a], alpha * own[1][a, b])
            outcome += (first + second) * reward / 9
            immediate += (first * (reward + gains[0]) + second * (reward + gains[1])) / 9
            summed += (first * (reward + sum(gains)) + second * (reward + gains[1])) / 9
    return outcome, immediate, summed


def test_the_policy_as_its_own_prover_only_scales_the_gradient_by_1_plus_alpha() -> None:
    outcome, immediate, summed = gradients(np.full((3, 3), 1 / 3))
    np.testing.assert_allclose(immediate, 3 * outcome, atol=1e-12)
    np.testing.assert_allclose(summed, 3 * outcome, atol=1e-12)


def test_summed_into_returns_every_prover_only_scales_it_and_immediate_credit_does_not() -> None:
    other = np.array([[0.6, 0.2, 0.2], [0.1, 0.1, 0.8], [1 / 3, 1 / 3, 1 / 3]])
    outcome, immediate, summed = gradients(other)
    np.testing.assert_allclose(summed, 3 * outcome, atol=1e-12)
    assert np.abs(immediate - 3 * outcome).max() > 0.01
    outcome, immediate, summed = gradients(np.full((3, 3), 1 / 3), k=4)
    np.testing.assert_allclose(summed, 3 * outcome, atol=1e-12)
    assert np.abs(immediate - 3 * outcome).max() > 0.01
