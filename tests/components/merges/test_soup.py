"""Soup: a weighted sum, exact where one model has all the weight."""

import pytest
import torch

from posttrain.components.merges.soup import Soup
from posttrain.errors import UserError

A, B, C = (torch.tensor(row, dtype=torch.float64) for row in ([1.0, -2.0], [3.0, 4.0], [5.0, 0.0]))


@pytest.mark.parametrize(
    ("weights", "tensors", "expected"),
    [
        (None, (A, B), [2.0, 1.0]),
        (None, (A, B, C), [3.0, 2 / 3]),
        ((0.25, 0.75), (A, B), [2.5, 2.5]),
        ((1.5, -0.5), (A, B), [0.0, -5.0]),
    ],
)
def test_average_by_hand(
    weights: tuple[float, ...] | None, tensors: tuple[torch.Tensor, ...], expected: list[float]
) -> None:
    assert Soup(weights=weights)("w", tensors, {}).tolist() == pytest.approx(expected)


def test_a_model_without_weight_takes_no_part() -> None:
    broken = torch.tensor([float("nan"), float("inf")], dtype=torch.float64)
    assert torch.equal(Soup(weights=(1.0, 0.0))("w", (A, broken), {}), A)


def test_weights_must_fit() -> None:
    with pytest.raises(UserError, match=r"weights has 2 numbers \(0.5, 0.5\) for 3 models"):
        Soup(weights=(0.5, 0.5)).check(3)
    with pytest.raises(UserError, match=r"the weights 0.5, 0.6 have the sum 1.1"):
        Soup(weights=(0.5, 0.6)).check(2)
    Soup().check(7)
    Soup(weights=(0.1, 0.2, 0.7)).check(3)
