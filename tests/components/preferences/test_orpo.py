"""ORPO: odds of means, the weight, and completions that are certain."""

import math

import pytest
import torch
from torch import Tensor

from posttrain.components.preferences import Pairs
from posttrain.components.preferences.orpo import ORPO

HALF, QUARTER = math.log(1 / 2), math.log(1 / 4)
LOGP = [[2 * HALF, 3 * QUARTER], [QUARTER, HALF]]
LENGTHS = [[2, 3], [1, 1]]
"""Probabilities of 1/2 and 1/4 a token, then of 1/4 and 1/2: odds of 1 and 1/3."""


def pairs(logp: list[list[float]] | Tensor = LOGP) -> Pairs:
    logp_P2 = torch.as_tensor(logp, dtype=torch.float64)
    return Pairs(logp_P2=logp_P2, length_P2=torch.tensor(LENGTHS))


def test_the_loss_by_hand() -> None:
    """sigmoid(log 3) is 3/4 and sigmoid(log 1/3) is 1/4."""
    result = ORPO(weight=0.5)(pairs())
    expected = [math.log(2) - 0.5 * math.log(3 / 4), math.log(4) - 0.5 * math.log(1 / 4)]
    assert result.loss_P.tolist() == pytest.approx(expected)
    assert result.metrics["pair_margin"].tolist() == pytest.approx([math.log(3), -math.log(3)])
    assert result.metrics["pair_accuracy"].tolist() == [1.0, 0.0]
    assert result.metrics["chosen_nll"].tolist() == pytest.approx([math.log(2), math.log(4)])


def test_without_weight_it_imitates_the_chosen_completion() -> None:
    assert ORPO(weight=0.0)(pairs()).loss_P.tolist() == pytest.approx([math.log(2), math.log(4)])


def test_finite_differences() -> None:
    loss = ORPO(weight=0.7)
    assert torch.autograd.gradcheck(lambda x: loss(pairs(x)).loss_P, torch.tensor(LOGP).double().requires_grad_())


def test_a_certain_completion_has_finite_odds() -> None:
    logp = torch.zeros(2, 2, dtype=torch.float32, requires_grad=True)
    result = ORPO()(Pairs(logp_P2=logp, length_P2=torch.tensor(LENGTHS)))
    assert result.loss_P.isfinite().all()
    (found,) = torch.autograd.grad(result.loss_P.sum(), logp)
    assert found[:, 0].tolist() == [-0.5, -1.0] and found[:, 1].tolist() == [0.0, 0.0]
