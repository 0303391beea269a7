from dataclasses import replace

import pytest
import torch

from posttrain.components.objectives.aipo import AIPO
from posttrain.components.objectives.policy_gradient import PolicyGradient
from tests.builders import gradients, random_tokens, tokens

LOGP = [[-1.0, -2.0, -0.5]]
"""Against a behaviour of the half, the same and a tenth: ratios 2, 1 and 10."""


def sampled(ratios: list[float]) -> torch.Tensor:
    return torch.tensor(LOGP[0], dtype=torch.float64) - torch.tensor(ratios, dtype=torch.float64).log()


def test_worked_example() -> None:
    these = replace(tokens(LOGP, advantage=[[1.0, 2.0, -3.0]]), behavior_logp_T=sampled([2.0, 1.0, 10.0]))
    result = AIPO(rho=4.0)(these)
    torch.testing.assert_close(result.loss_T.double(), torch.tensor([2.0, 4.0, -6.0], dtype=torch.float64))
    slope = gradients(result.loss_T.sum(), these)["logp_T"]
    torch.testing.assert_close(slope.double(), torch.tensor([-2.0, -2.0, 12.0], dtype=torch.float64))
    assert result.metrics["above_rho"].tolist() == [0.0, 0.0, 1.0]


def test_the_ports_reading_has_no_gradient_above_rho() -> None:
    these = replace(tokens(LOGP, advantage=[[1.0, 2.0, -3.0]]), behavior_logp_T=sampled([2.0, 1.0, 10.0]))
    slope = gradients(AIPO(rho=4.0, stop_above=True)(these).loss_T.sum(), these)["logp_T"]
    torch.testing.assert_close(slope.double(), torch.tensor([-2.0, -2.0, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_on_policy_it_is_the_policy_gradient_to_the_bit(dtype: torch.dtype) -> None:
    these = random_tokens(gap=0.0, dtype=dtype)
    these = replace(these, behavior_logp_T=these.logp_T.detach().clone())
    for objective in (AIPO(rho=2.0), AIPO(rho=10.0)):
        one, other = objective(these).loss_T, PolicyGradient()(these).loss_T
        assert torch.equal(one, other)
        assert torch.equal(gradients(one.sum(), these)["logp_T"], gradients(other.sum(), these)["logp_T"])


def test_the_weight_is_not_differentiated() -> None:
    """The slope is weight times advantage; with a differentiated weight it would also have a term of the log."""
    these = replace(tokens([[-3.0]], advantage=[[1.0]]), behavior_logp_T=torch.tensor([-4.0]))
    slope = gradients(AIPO(rho=10.0)(these).loss_T.sum(), these)["logp_T"]
    assert slope.tolist() == pytest.approx([-2.718281828])


def test_a_token_that_nobody_sampled_has_the_weight_one() -> None:
    these = replace(tokens([[-3.0]], advantage=[[2.0]]), behavior_logp_T=torch.tensor([torch.nan]))
    assert AIPO()(these).loss_T.tolist() == [6.0]
