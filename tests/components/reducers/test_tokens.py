import numpy as np
import pytest

from posttrain.components.reducers.tokens import Tokens


def test_mean_over_all_tokens() -> None:
    weight_N = Tokens().weights(np.array([3, 1]), np.array([0, 1]))
    assert weight_N.tolist() == [0.25, 0.25]
    # Token losses 1 2 3 | 5.
    assert weight_N @ [1 + 2 + 3, 5] == pytest.approx(11 / 4)


def test_weights_sum_to_one_over_the_tokens() -> None:
    length_N = np.array([7, 0, 2, 31])
    assert (Tokens().weights(length_N, np.zeros(4, np.int64)) * length_N).sum() == pytest.approx(1)
