import math
from dataclasses import replace
from typing import Literal

import pytest
import torch

from posttrain.components.objectives.likelihood import Likelihood
from tests.builders import gradients, numerical_gradient, random_tokens, tokens


def test_worked_example_with_tokens_that_nobody_sampled() -> None:
    nan = math.nan
    these = tokens([[-1.0, -2.0], [-0.5]], old_logp=[[nan, nan], [nan]], advantage=[[0.0, 5.0], [-1.0]])
    result = Likelihood()(these)
    assert result.loss_T.tolist() == [1.0, 2.0, 0.5]
    assert gradients(result.loss_T.sum(), these)["logp_T"].tolist() == [-1.0] * 3


def test_finite_differences() -> None:
    these = random_tokens()

    def loss(logp_T: torch.Tensor) -> torch.Tensor:
        return Likelihood()(replace(these, logp_T=logp_T)).loss_T.sum()

    found = gradients(loss(these.logp_T), these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(loss, these.logp_T), atol=1e-7, rtol=1e-6)


def test_of_whole_sequences() -> None:
    """Each token times the number of its sequence's: what a mean over its tokens leaves is their sum, 3 and 0.5."""
    these = tokens([[-1.0, -2.0], [-0.5]])
    loss_T = Likelihood(per="sequence")(these).loss_T
    assert loss_T.tolist() == [2.0, 4.0, 0.5]
    assert these.sequence_mean(loss_T).tolist() == [3.0, 0.5]


@pytest.mark.parametrize(("weight", "expected"), [("one", 1.0), ("probability", 0.2), ("undecided", 0.16)])
def test_weights_of_a_token_by_hand(weight: Literal["one", "probability", "undecided"], expected: float) -> None:
    """p = .2: the gradient in log p is minus the weight, which is itself not differentiated."""
    these = tokens([[math.log(0.2)]])
    result = Likelihood(weight=weight)(these)
    assert result.loss_T.tolist() == pytest.approx([-expected * math.log(0.2)])
    assert gradients(result.loss_T.sum(), these)["logp_T"].tolist() == pytest.approx([-expected])


def test_undecided_tokens_move_the_policy_most() -> None:
    """The weight vanishes at both ends: .001 at p = .001, .25 at most."""
    these = tokens([[math.log(p) for p in (0.001, 0.5, 0.999)]])
    slope = gradients(Likelihood(weight="undecided")(these).loss_T.sum(), these)["logp_T"]
    assert slope.tolist() == pytest.approx([-0.000999, -0.25, -0.000999])


def test_finite_differences_with_the_weight_held_fixed() -> None:
    these = random_tokens()
    weight_T = these.logp_T.detach().exp() * (1 - these.logp_T.detach().exp())

    def loss(logp_T: torch.Tensor) -> torch.Tensor:
        return -(weight_T * logp_T).sum()

    found = gradients(Likelihood(weight="undecided")(these).loss_T.sum(), these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(loss, these.logp_T), atol=1e-7, rtol=1e-6)


def test_a_cutoff_stops_tokens_that_are_likely_enough() -> None:
    these = tokens([[math.log(0.9), math.log(0.3)]])
    result = Likelihood(cutoff=0.5)(these)
    assert result.loss_T.tolist() == pytest.approx([-math.log(0.5), -math.log(0.3)])
    assert gradients(result.loss_T.sum(), these)["logp_T"].tolist() == [0.0, -1.0]
