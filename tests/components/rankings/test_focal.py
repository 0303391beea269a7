"""The focal ranking loss."""

import math

import numpy as np
import pytest
import torch

from posttrain.components.rankings.focal import Focal

GAP_P = torch.tensor([math.log(3.0), -math.log(3.0), 0.0], dtype=torch.float64)
"""P is 3/4, 1/4 and 1/2."""


def test_the_loss_by_hand() -> None:
    """With 3/4 the factor is (1 - 2 / 4)^2; with 1/4 and 1/2 it is 1."""
    assert Focal()(GAP_P, {}).tolist() == pytest.approx([math.log(4 / 3) / 4, math.log(4), math.log(2)])
    assert Focal(gamma=1.0)(GAP_P, {})[0].item() == pytest.approx(math.log(4 / 3) / 2)


def test_the_formula_in_float64() -> None:
    gap_P = np.random.default_rng(0).normal(size=500) * 4
    probability_P = 1 / (1 + np.exp(-gap_P))
    expected_P = -((1 - 2 * np.maximum(0, probability_P - 0.5)) ** 1.7) * np.log(probability_P)
    np.testing.assert_allclose(Focal(gamma=1.7)(torch.from_numpy(gap_P), {}).numpy(), expected_P, rtol=1e-10)


def test_without_gamma_it_is_bradley_terry_to_the_bit() -> None:
    gap_P = torch.linspace(-30, 30, 301)
    assert torch.equal(Focal(gamma=0.0)(gap_P, {}), -torch.nn.functional.logsigmoid(gap_P))
    wrong_P = gap_P[gap_P <= 0]
    assert torch.equal(Focal()(wrong_P, {}), -torch.nn.functional.logsigmoid(wrong_P))


def test_finite_differences() -> None:
    gap_P = torch.tensor([2.0, 0.4, -1.3], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: Focal()(x, {}), gap_P)


def test_what_is_in_order_has_a_smaller_gradient() -> None:
    gap_P = torch.tensor([3.0, -3.0], dtype=torch.float64, requires_grad=True)
    found = []
    for gamma in (0.0, 2.0):
        (gradient_P,) = torch.autograd.grad(Focal(gamma=gamma)(gap_P, {}).sum(), gap_P)
        found.append(gradient_P.abs())
    assert found[1][0] < 0.1 * found[0][0] and found[1][1] == found[0][1]
