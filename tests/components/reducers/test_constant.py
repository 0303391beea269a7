import numpy as np
import pytest

from posttrain.components.reducers.constant import Constant


def test_mean_over_sequences_of_sums_over_a_constant() -> None:
    weight_N = Constant(length=10).weights(np.array([3, 1]), np.array([0, 1]))
    assert weight_N.tolist() == pytest.approx([0.05, 0.05])
    # Token losses 1 2 3 | 5: sums 6 and 5.
    assert weight_N @ [1 + 2 + 3, 5] == pytest.approx((0.6 + 0.5) / 2)


def test_a_longer_neighbour_changes_nothing() -> None:
    short, long = (Constant().weights(np.array([3, n]), np.array([0, 0])) for n in (1, 900))
    assert np.array_equal(short, long)


def test_the_plain_sum_over_a_constant() -> None:
    weight_N = Constant(length=1000, average=False).weights(np.array([3, 0, 1]), np.array([0, 0, 1]))
    assert weight_N.tolist() == pytest.approx([0.001] * 3)
    # Token losses 1 2 3 | | 5.
    assert weight_N @ [1 + 2 + 3, 0, 5] == pytest.approx(0.011)
