"""Mirror descent: the square of a whole response by hand, the surrogate that it is the gradient of, where it rests."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from posttrain.components.objectives.mirror_descent import MirrorDescent
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.types import Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens

LN2 = math.log(2.0)


def test_worked_example() -> None:
    """Token ratios 2 and 4, so s = 3 ln 2; A = 1, tau = 0.5. The loss -s + 0.25 s^2 has the slope -1 + 0.5 s."""
    these = tokens([[-1.0, -2.0]], old_logp=[[-1.0 - LN2, -2.0 - 2 * LN2]], advantage=[[1.0, 1.0]])
    result = MirrorDescent(tau=0.5)(these)
    assert result.loss_T.sum().item() == pytest.approx(-3 * LN2 + 0.25 * 9 * LN2**2)
    assert result.metrics["log_ratio"].tolist() == pytest.approx([3 * LN2])
    slopes = gradients(result.loss_T.sum(), these)["logp_T"].tolist()
    assert slopes == pytest.approx([-1 + 1.5 * LN2] * 2)


def test_the_square_is_of_the_sum_not_a_sum_of_squares() -> None:
    """Tokens of ratios 2 and 1/2 cancel in the response, which is as likely as it was: nothing holds it back."""
    these = tokens([[-1.0, -1.0]], old_logp=[[-1.0 - LN2, -1.0 + LN2]], advantage=[[0.0, 0.0]])
    result = MirrorDescent(tau=1.0)(these)
    assert result.loss_T.tolist() == pytest.approx([0.0, 0.0], abs=1e-12)
    assert gradients(result.loss_T.sum(), these)["logp_T"].tolist() == pytest.approx([0.0, 0.0], abs=1e-12)


def surrogate(these: Tokens, logp_T: Tensor, tau: float) -> Tensor:
    """(A - tau log(pi / pi_i))^2 / (2 tau), summed over responses."""
    log_ratio_N = these.sequence_sum(logp_T - these.old_logp_T)
    return ((these.last(these.advantage_T) - tau * log_ratio_N) ** 2 / (2 * tau)).sum()


@pytest.mark.parametrize("tau", [0.01, 0.1, 1.0])
def test_it_is_the_gradient_of_the_squared_surrogate(tau: float) -> None:
    these = random_tokens(3, lengths=(3, 1, 4, 2, 5), gap=0.8, advantage_by="sequence")
    found = gradients(MirrorDescent(tau=tau)(these).loss_T.sum(), these)["logp_T"]
    numerical = numerical_gradient(lambda logp_T: surrogate(these, logp_T, tau), these.logp_T)
    torch.testing.assert_close(found, numerical, atol=1e-7, rtol=1e-6)


def test_its_value_is_that_of_the_surrogate_but_for_a_constant() -> None:
    these = random_tokens(4, gap=0.8, advantage_by="sequence")
    constant = (these.last(these.advantage_T) ** 2 / (2 * 0.3)).sum()
    loss = MirrorDescent(tau=0.3)(these).loss_T.sum()
    torch.testing.assert_close(loss, surrogate(these, these.logp_T, 0.3) - constant)


def test_at_the_policy_that_sampled_it_is_reinforce() -> None:
    same = random_tokens(gap=0.0, advantage_by="sequence")
    found = gradients(MirrorDescent(tau=5.0)(same).loss_T.sum(), same)
    torch.testing.assert_close(found, gradients(PolicyGradient()(same).loss_T.sum(), same))


@pytest.mark.parametrize("advantage", [0.5, -0.25])
def test_it_rests_where_the_log_ratio_is_the_advantage_over_tau(advantage: float) -> None:
    """A / tau = 5 and -2.5 nats, half of it at each of two tokens; without the square there is no rest."""
    half = advantage / 0.1 / 2
    these = tokens([[-7.0 + half, -6.0 + half]], old_logp=[[-7.0, -6.0]], advantage=[[advantage] * 2])
    held = gradients(MirrorDescent(tau=0.1)(these).loss_T.sum(), these)["logp_T"]
    assert held.tolist() == pytest.approx([0.0, 0.0], abs=1e-12)
    free = gradients(MirrorDescent(tau=0.0)(these).loss_T.sum(), these)["logp_T"]
    assert free.tolist() == [-advantage] * 2


def test_a_group_without_a_difference_is_pulled_back() -> None:
    """One response has become twice as likely, one half: both go back, and where nothing has moved nothing happens."""
    these = tokens(
        [[-1.0], [-1.0], [-1.0]], old_logp=[[-1.0 - LN2], [-1.0 + LN2], [-1.0]], advantage=[[0.0], [0.0], [0.0]]
    )
    slopes = gradients(MirrorDescent(tau=0.5)(these).loss_T.sum(), these)["logp_T"]
    assert slopes.tolist() == pytest.approx([0.5 * LN2, -0.5 * LN2, 0.0])
    assert MirrorDescent(tau=0.5).exceptions == {"zero_advantage"}
    assert MirrorDescent(tau=0.0).exceptions == frozenset()


def test_the_ratio_is_to_the_policy_that_the_step_began_with() -> None:
    these = tokens([[-1.0]], old_logp=[[-1.0 - LN2]], behavior_logp=[[-9.0]])
    assert MirrorDescent()(these).metrics["log_ratio"].tolist() == pytest.approx([LN2])


@pytest.mark.parametrize("gap", [-30.0, 30.0])
def test_a_long_response_far_away_is_finite(gap: float) -> None:
    these = tokens([[-40.0] * 3000], old_logp=[[-40.0 - gap] * 3000], advantage=[[-1.0] * 3000], dtype=torch.float32)
    loss_T = MirrorDescent(tau=1.0)(these).loss_T
    assert loss_T.isfinite().all() and gradients(loss_T.sum(), these)["logp_T"].isfinite().all()


def log_ratios(tau: float, passes: int) -> list[float]:
    """How far two arms of a bandit, rewarded with 1 and 0, have moved after some passes over the same two pulls."""
    start_A = torch.zeros(2, dtype=torch.float64).log_softmax(0)
    logits_A = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    data = tokens([[x] for x in start_A.tolist()], advantage=[[0.5], [-0.5]])
    for _ in range(passes):
        loss = MirrorDescent(tau=tau)(replace(data, logp_T=logits_A.log_softmax(0))).loss_T.mean()
        (gradient_A,) = torch.autograd.grad(loss, logits_A)
        logits_A = (logits_A - 0.5 * gradient_A).detach().requires_grad_()
    return [float(x) for x in logits_A.log_softmax(0).detach() - start_A]


def test_many_passes_end_somewhere_with_the_square_and_nowhere_without() -> None:
    """Two arms of equal chance, tau = 0.5: where there were no simplex they would rest at +-1 nats."""
    right, wrong = log_ratios(0.5, 400)
    assert log_ratios(0.5, 800) == pytest.approx([right, wrong], abs=1e-9), "it has come to rest"
    assert math.exp(right) + math.exp(wrong) == pytest.approx(2.0)
    # There the slopes f = A - tau s of the two arms are in balance: p_wrong f(right) = p_right f(wrong).
    f, g = 0.5 - 0.5 * right, -0.5 - 0.5 * wrong
    assert math.exp(wrong) * f == pytest.approx(math.exp(right) * g, abs=1e-9)
    assert right < 0.7 and wrong > -2.0
    assert log_ratios(0.0, 800)[1] < log_ratios(0.0, 400)[1] - 0.5, "without it the bad arm is left for ever"
