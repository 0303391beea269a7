"""The barrier on scores."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from posttrain.components.penalties.score_barrier import ScoreBarrier
from posttrain.signals import SCORE
from posttrain.types import Tokens
from tests.builders import tokens


def scored(score_T: Tensor) -> Tokens:
    """Sequences of two, one and one tokens."""
    return replace(tokens([[0.0, 0.0], [0.0], [0.0]]), signals={SCORE: score_T})


SCORES = torch.tensor([99.0, 0.0, 3.0, -3.0], dtype=torch.float64)


def loss_T(penalty: ScoreBarrier, score_T: Tensor) -> Tensor:
    term = penalty.in_loss(scored(score_T))
    assert term is not None
    return term.loss_T


def test_the_term_by_hand() -> None:
    """Only the last score of a sequence counts, and both signs alike."""
    found = loss_T(ScoreBarrier(coefficient=0.5), SCORES)
    level, away = -math.log(5), -(math.log(2) + math.log(8)) / 2
    assert found.tolist() == pytest.approx([level, level, away, away])


def test_beyond_the_edge_it_is_a_tangent() -> None:
    penalty = ScoreBarrier(coefficient=1.0, bound=2.0, edge=0.5)
    at_one, slope = -math.log(3), 1.0 - 1 / 3
    score_T = torch.tensor([0.0, 1.0, 4.0, -4.0], dtype=torch.float64, requires_grad=True)
    found = loss_T(penalty, score_T)
    assert found.tolist() == pytest.approx([at_one, at_one, at_one + 3 * slope, at_one + 3 * slope])
    (gradient_T,) = torch.autograd.grad(found[1:].sum(), score_T)
    assert gradient_T[2:].tolist() == pytest.approx([slope, -slope])
    term = penalty.in_loss(scored(score_T))
    assert term is not None and term.metrics["beyond"].tolist() == [0.0, 1.0, 1.0]


def test_finite_differences() -> None:
    score_T = torch.tensor([0.0, 1.2, 4.98, -7.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: loss_T(ScoreBarrier(), x), score_T)


def test_finite_in_float32_anywhere() -> None:
    score_T = torch.tensor([0.0, 5.0, -5.0, 1e6], requires_grad=True)
    found = loss_T(ScoreBarrier(), score_T)
    (gradient_T,) = torch.autograd.grad(found.sum(), score_T)
    assert found.isfinite().all() and gradient_T.isfinite().all()
