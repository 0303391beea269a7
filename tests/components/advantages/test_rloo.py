import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posttrain.components.advantages.rloo import RLOO
from tests.builders import batch


def first_tokens(rewards: list[list[float]]) -> list[float]:
    _, credit = RLOO()({}, batch(rewards))
    return [float(a[0]) for a in credit.advantages]


def test_baseline_is_the_mean_of_the_others() -> None:
    assert first_tokens([[1, 0, 0, 1], [3, 1]]) == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3, 2, -2])


def test_one_rollout_has_no_others() -> None:
    assert first_tokens([[5.0], [0.1] * 3]) == [0.0] * 4


@given(st.lists(st.floats(-10, 10, width=32), min_size=2, max_size=8))
def test_equals_the_definition(rewards: list[float]) -> None:
    others = [np.mean(rewards[:i] + rewards[i + 1 :]) for i in range(len(rewards))]
    assert first_tokens([rewards]) == pytest.approx([r - b for r, b in zip(rewards, others, strict=True)], abs=1e-5)


def test_gradient_is_unbiased() -> None:
    """Over all pairs of draws from a two-armed policy, the mean of A grad log p is the gradient of the mean reward."""
    probability, reward = np.array([0.3, 0.7]), [2.0, 5.0]
    score = np.array([1 - 0.3, -0.3])  # d log p(arm) / d logit of arm 0
    estimate = 0.0
    for first in (0, 1):
        for second in (0, 1):
            a, b = first_tokens([[reward[first], reward[second]]])
            estimate += probability[first] * probability[second] * (a * score[first] + b * score[second]) / 2
    assert estimate == pytest.approx(0.3 * 0.7 * (reward[0] - reward[1]))
