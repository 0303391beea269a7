import math

import pytest

from posttrain.components.advantages.soft_mean import SoftMean
from tests.builders import batch


def test_by_hand() -> None:
    """Rewards 1 and 0 at tau 1: the soft mean is log((e + 1) / 2)."""
    _, credit = SoftMean(tau=1.0)({}, batch([[1.0, 0.0]]))
    soft = math.log((math.e + 1) / 2)
    assert [float(a_T[0]) for a_T in credit.advantages] == pytest.approx([1 - soft, -soft], rel=1e-6)


def test_it_lies_between_the_mean_and_the_highest() -> None:
    cold, hot = ([float(a_T[0]) for a_T in SoftMean(tau=tau)({}, batch([[1.0, 0.0]]))[1].advantages]
                 for tau in (1e-3, 1e3))  # fmt: skip
    assert cold == pytest.approx([0, -1], abs=1e-3) and hot == pytest.approx([0.5, -0.5], abs=1e-3)


def test_equal_rewards_and_large_ones_give_zero() -> None:
    _, credit = SoftMean()({}, batch([[3e4, 3e4], [7.0]]))
    assert [float(a_T[0]) for a_T in credit.advantages] == [0, 0, 0]
