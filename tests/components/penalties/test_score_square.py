"""The square of scores."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from posttrain.components.penalties.score_square import ScoreSquare
from posttrain.signals import SCORE
from posttrain.types import PerToken
from tests.builders import tokens


def term(score_T: Tensor) -> PerToken:
    """Of sequences with two and one tokens."""
    found = ScoreSquare(coefficient=0.1).in_loss(replace(tokens([[0.0, 0.0], [0.0]]), signals={SCORE: score_T}))
    assert found is not None
    return found


def test_the_term_by_hand() -> None:
    found = term(torch.tensor([9.0, 2.0, -3.0], dtype=torch.float64))
    assert found.loss_T.tolist() == pytest.approx([0.4, 0.4, 0.9])
    assert found.metrics["square"].tolist() == [4.0, 9.0]


def test_finite_differences_and_signs() -> None:
    score_T = torch.tensor([9.0, 2.0, -3.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: term(x).loss_T, score_T)
    assert torch.equal(term(score_T).loss_T, term(-score_T).loss_T)
