import math
from dataclasses import replace

import pytest
import torch

from posttrain.components.objectives.multiple_importance import MultipleImportance
from posttrain.components.objectives.unified import LUFFY
from tests.builders import gradients, numerical_gradient, random_tokens, tokens


def test_by_hand() -> None:
    """p = .25, p_old = .2, A = 2: released 2 (.25) / (.2 + .6) = .625; with 1/V = .1, .5 / (.2 + .15) = 1.42857."""
    these = tokens([[math.log(0.25)]], old_logp=[[math.log(0.2)]], advantage=[[2.0]])
    for uniform, ratio in ((1.0, 0.625), (0.1, 0.5 / 0.35)):
        result = MultipleImportance(uniform=uniform)(these)
        assert result.metrics["ratio"].tolist() == pytest.approx([ratio])
        assert result.metrics["exploration"].tolist() == pytest.approx([0.75**0.5])
        value = -ratio * 2.0 * 0.75**0.5
        assert result.loss_T.tolist() == pytest.approx([value])
        assert gradients(result.loss_T.sum(), these)["logp_T"].tolist() == pytest.approx([value]), "value x grad log p"


def test_the_ratio_is_1_only_where_the_policy_is_certain() -> None:
    """With pi = pi_old, r = 4 p / (3 p + 1); in the paper's form about 4/3 for an ordinary token."""
    these = tokens([[math.log(p) for p in (1.0, 0.5, 0.001)]])
    released = MultipleImportance()(these).metrics["ratio"]
    assert released.tolist() == pytest.approx([1.0, 0.8, 0.004 / 1.003])
    uniform = MultipleImportance(uniform=1e-6)(these).metrics["ratio"]
    assert uniform.tolist() == pytest.approx([4 / 3] * 3, rel=1e-3)


def test_finite_differences_with_the_factor_held_fixed() -> None:
    these = random_tokens(gap=0.5)
    factor_T = (1 - these.logp_T.detach().exp()) ** 0.5

    def loss(logp_T: torch.Tensor) -> torch.Tensor:
        ratio_T = 4 * logp_T.exp() / (3 * these.old_logp_T.exp() + 1)
        return -(ratio_T * factor_T * these.advantage_T).sum()

    objective = MultipleImportance()
    found = gradients(objective(these).loss_T.sum(), these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(loss, these.logp_T), atol=1e-7, rtol=1e-6)
    plain = gradients(MultipleImportance(gamma=0.0)(these).loss_T.sum(), these)["logp_T"]
    assert (plain.abs() >= found.abs()).all()


def test_extremes_are_finite_and_a_certain_token_has_no_gradient() -> None:
    these = tokens([[0.0, -900.0]], old_logp=[[-900.0, 0.0]])
    result = MultipleImportance(uniform=1e-5)(these)
    assert result.loss_T.isfinite().all()
    assert gradients(result.loss_T.sum(), these)["logp_T"].tolist() == [0.0, 0.0]


def updates_until_half(objective: object, first: float, rate: float = 1.0) -> int:
    """Steps of gradient descent until the demonstrated one of four choices has a probability of one half."""
    logits = torch.zeros(4, dtype=torch.float64)
    logits[0] = math.log(first / ((1 - first) / 3))
    for step in range(1000):
        logits.requires_grad_()
        logp_T = logits.log_softmax(0)[:1]
        if logp_T.exp() >= 0.5:
            return step
        these = replace(
            tokens([[0.0]]),
            logp_T=logp_T,
            old_logp_T=logp_T.detach(),
            behavior_logp_T=torch.full((1,), math.nan, dtype=torch.float64),
        )
        [slope] = torch.autograd.grad(objective(these).loss_T.sum(), [logits])  # type: ignore[operator]
        logits = (logits - rate * slope).detach()
    return 1000


def test_an_unlikely_choice_is_learned_soonest_with_the_uniform_share_of_the_paper() -> None:
    """One of four choices, from .1 and .01: 1/V is first; the released form and LUFFY's shape are slow where p is."""
    paper, released = MultipleImportance(uniform=0.25), MultipleImportance()
    likely = [updates_until_half(objective, 0.1, 0.1) for objective in (paper, released, LUFFY)]
    rare = [updates_until_half(objective, 0.01, 0.1) for objective in (paper, released, LUFFY)]
    assert likely[0] < likely[1] and rare[0] < rare[1] and rare[0] < rare[2]
    assert rare[1] > 2 * likely[1], "4 p of a rare token is little"
