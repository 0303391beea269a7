import math

import numpy as np
import pytest

from posttrain.components.advantages.exp_reward import ExpReward
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.reducers.sequences import Sequences
from tests.builders import batch, tokens


def test_weights_are_neither_centred_nor_normalized() -> None:
    """exp(1 / 0.4) = 12.18, exp(0) = 1, exp(-1 / 0.4) = 0.082."""
    _, credit = ExpReward()({}, batch([[1.0, 0.0], [-1.0]]))
    assert [a.tolist() for a in credit.advantages] == [
        pytest.approx([12.182494] * 2),
        pytest.approx([1.0] * 2),
        pytest.approx([0.082085] * 2),
    ]
    assert credit.metrics["mean_weight"] == pytest.approx((12.182494 + 1.0 + 0.082085) / 3)


def test_a_large_reward_has_the_largest_weight() -> None:
    _, credit = ExpReward(tau=1.0, largest=100.0)({}, batch([[50.0, math.log(100.0), 1.0]]))
    assert [float(a[0]) for a in credit.advantages] == pytest.approx([100.0, 100.0, math.e])


def test_the_loss_is_the_mean_of_weighted_means_of_tokens() -> None:
    """Two sequences, of two tokens with -1 and -3 and of one with -2; weights 12.18 and 1: (12.18 x 2 + 2) / 2."""
    weight = math.exp(1 / 0.4)
    given = tokens([[-1.0, -3.0], [-2.0]], advantage=[[weight, weight], [1.0]])
    loss_T = PolicyGradient()(given).loss_T.detach().numpy()
    weights_N = Sequences().weights(np.array([2, 1]), np.array([0, 0]))
    assert float((loss_T * np.repeat(weights_N, [2, 1])).sum()) == pytest.approx((2 * weight + 2) / 2)
