import numpy as np
import pytest

from posttrain.components.reducers.groups import Groups
from posttrain.components.reducers.sequences import Sequences


def test_mean_over_groups_of_means_of_means() -> None:
    """Sequences of 2, 1 and 1 tokens, and one of 4 alone: 1/2 (1/3 (1.5 + 5 + 7) + 4) of losses 1 2, 5, 7, and 4s."""
    weight_N = Groups().weights(np.array([2, 1, 1, 4]), np.array([0, 0, 0, 1]))
    assert weight_N.tolist() == pytest.approx([1 / 12, 1 / 6, 1 / 6, 1 / 8])
    assert weight_N @ [1 + 2, 5, 7, 4 * 4] == pytest.approx(0.5 * ((1.5 + 5 + 7) / 3 + 4))


def test_the_size_of_a_group_changes_nothing() -> None:
    length_N, group_N = np.array([7, 2, 31, 5]), np.array([0, 1, 1, 1])
    shares = Groups().weights(length_N, group_N) * length_N
    assert shares[0] == pytest.approx(0.5) and shares[1:].tolist() == pytest.approx([1 / 6] * 3)


def test_of_equal_groups_it_is_the_mean_over_sequences() -> None:
    length_N, group_N = np.array([3, 1, 7, 2]), np.array([1, 0, 0, 1])
    np.testing.assert_allclose(Groups().weights(length_N, group_N), Sequences().weights(length_N, group_N))


def test_empty_sequences_and_groups_are_not_counted() -> None:
    weight_N = Groups().weights(np.array([2, 0, 4, 0]), np.array([0, 0, 2, 1]))
    assert weight_N[[0, 2]].tolist() == pytest.approx([1 / 4, 1 / 8])
