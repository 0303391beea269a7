"""Laws of the reducers, for every member on arrival."""

import numpy as np
import pytest
import torch

from posttrain.components.reducers import Reducer
from tests.conformance._members import each, members

every_member = pytest.mark.parametrize("reducer", members(Reducer))

LENGTHS = np.array([3, 1, 7, 2, 2, 5, 1])
GROUPS = np.array([0, 0, 0, 1, 1, 2, 2])


@every_member
def test_one_positive_weight_a_sequence(reducer: Reducer) -> None:
    weight_N = reducer.weights(LENGTHS, GROUPS)
    assert weight_N.shape == LENGTHS.shape
    assert weight_N.dtype == np.float32
    assert (np.isfinite(weight_N) & (weight_N > 0)).all()


@every_member
def test_sequences_without_tokens_change_nothing(reducer: Reducer) -> None:
    with_empty = reducer.weights(np.append(LENGTHS, 0), np.append(GROUPS, 2))
    np.testing.assert_array_equal(with_empty[:-1], reducer.weights(LENGTHS, GROUPS))
    assert np.isfinite(with_empty).all()
    assert np.isfinite(reducer.weights(np.array([0, 0]), np.array([0, 1]))).all()


@every_member
@each(parts=[1, 2, 7])
def test_gradient_does_not_depend_on_micro_batches(reducer: Reducer, parts: int) -> None:
    """However the sequences of a step are ordered and cut, the weighted sum of token losses has the same gradient."""
    rng = np.random.default_rng(parts)
    features = [torch.from_numpy(rng.normal(size=(length, 5))) for length in LENGTHS]

    def gradient(order: np.ndarray, cuts: int) -> torch.Tensor:
        parameter = torch.ones(5, dtype=torch.float64, requires_grad=True)
        weight_N = reducer.weights(LENGTHS[order], GROUPS[order])
        for part in np.array_split(np.arange(len(order)), cuts):
            losses = [(features[order[i]] @ parameter).square() * float(weight_N[i]) for i in part]
            torch.cat(losses).sum().backward()
        assert parameter.grad is not None
        return parameter.grad

    whole = gradient(np.arange(len(LENGTHS)), 1)
    torch.testing.assert_close(gradient(rng.permutation(len(LENGTHS)), parts), whole, rtol=1e-6, atol=1e-9)
