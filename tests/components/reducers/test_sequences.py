import numpy as np
import pytest

from posttrain.components.reducers.sequences import Sequences


def test_mean_over_sequences_of_their_means() -> None:
    weight_N = Sequences().weights(np.array([3, 1]), np.array([0, 1]))
    assert weight_N.tolist() == pytest.approx([1 / 6, 1 / 2])
    # Token losses 1 2 3 | 5: means 2 and 5.
    assert weight_N @ [1 + 2 + 3, 5] == pytest.approx(3.5)


def test_weights_sum_to_one_over_the_tokens() -> None:
    length_N = np.array([7, 0, 2, 31])
    assert (Sequences().weights(length_N, np.zeros(4, np.int64)) * length_N).sum() == pytest.approx(1)


def test_a_fixed_count_does_not_follow_the_sequences_that_are_left() -> None:
    """Means 2 and 5 over a count of 4."""
    weight_N = Sequences(count=4).weights(np.array([3, 1]), np.array([0, 1]))
    assert weight_N @ [1 + 2 + 3, 5] == pytest.approx(7 / 4)
