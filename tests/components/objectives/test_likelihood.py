import math
from dataclasses import replace

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
