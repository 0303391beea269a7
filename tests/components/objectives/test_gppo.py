import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from posttrain.components.objectives import Objective
from posttrain.components.objectives.gppo import GPPO
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.types import PerToken, Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens


def one_token(objective: Objective, advantage: float, log_ratio: float) -> tuple[float, float, PerToken]:
    """Loss of one token, its derivative with respect to the log-probability, and all that came back."""
    these = tokens([[-100.0 + log_ratio]], old_logp=[[-100.0]], advantage=[[advantage]])
    result = objective(these)
    return result.loss_T.item(), gradients(result.loss_T.sum(), these)["logp_T"].item(), result


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "slope"),
    [
        (1.0, 1.0, -1.0, -1.0),
        (1.0, 1.1, -1.1, -1.1),
        (1.0, 1.5, -1.2, -1.2),  # the value of PPO, and still a gradient
        (1.0, 9.0, -1.2, -1.2),  # of the same size however far
        (1.0, 0.5, -0.5, -0.5),
        (-1.0, 0.5, 0.8, 0.8),
        (-2.0, 0.1, 1.6, 1.6),
        (-1.0, 0.9, 0.9, 0.9),
        (-1.0, 1.5, 1.5, 1.5),
        (-1.0, 4.0, 4.0, 4.0),
        (0.0, 4.0, 0.0, 0.0),
    ],
)
def test_the_value_is_clipped_and_the_gradient_bounded(
    advantage: float, ratio: float, loss: float, slope: float
) -> None:
    assert one_token(GPPO(clip_high=0.2), advantage, math.log(ratio))[:2] == pytest.approx((loss, slope))


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "slope"),
    [
        (1.0, 1.5, -1.28, -0.64),  # half of 1.28
        (-1.0, 0.5, 0.8, 0.2),  # a quarter of 0.8
        (1.0, 1.2, -1.2, -1.2),  # in range no weight is applied
        (1.0, 0.5, -0.5, -0.5),  # nor on the side that PPO does not clip
        (-1.0, 1.5, 1.5, 1.5),
    ],
)
def test_weights_are_of_clipped_tokens_only(advantage: float, ratio: float, loss: float, slope: float) -> None:
    weighed = GPPO(beta_low=0.25, beta_high=0.5)
    assert one_token(weighed, advantage, math.log(ratio))[:2] == pytest.approx((loss, slope))


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "slope"),
    [
        (-1.0, 4.0, 3.0, 0.0),  # stopped: "never zero" ends here
        (-2.0, 4.0, 6.0, 0.0),
        (-1.0, 2.5, 2.5, 2.5),
        (-1.0, 0.5, 0.8, 0.8),
        (1.0, 4.0, -1.28, -1.28),  # positive advantages are not touched
    ],
)
def test_dual_clip(advantage: float, ratio: float, loss: float, slope: float) -> None:
    assert one_token(GPPO(dual_clip=3.0), advantage, math.log(ratio))[:2] == pytest.approx((loss, slope))


def test_beyond_e20_the_gradient_is_still_there() -> None:
    assert one_token(GPPO(), 1.0, 80.0)[:2] == pytest.approx((-1.28, -1.28))
    assert one_token(GPPO(), -1.0, -80.0)[:2] == pytest.approx((0.8, 0.8))
    assert one_token(GPPO(), -1.0, 80.0)[:2] == pytest.approx((math.exp(20), math.exp(20)))
    assert one_token(GPPO(dual_clip=10.0), -1.0, 80.0)[:2] == pytest.approx((10.0, 0.0))


def papers_formula(these: Tokens) -> Tensor:
    """-min(r A, clip(r, 0.8 r / sg(r), 1.28 r / sg(r)) A), differentiated through its bounds."""
    ratio_T = (these.logp_T - these.old_logp_T).exp()
    one_T = ratio_T / ratio_T.detach()
    held_T = torch.clamp(ratio_T, min=0.8 * one_T, max=1.28 * one_T)
    return -torch.minimum(ratio_T * these.advantage_T, held_T * these.advantage_T)


def test_it_is_the_papers_formula() -> None:
    these = random_tokens(5, gap=0.5, lengths=(40, 20, 30))
    result = GPPO()(these)
    expected_T = papers_formula(these)
    torch.testing.assert_close(result.loss_T, expected_T)
    found, expected = (gradients(loss_T.sum(), these)["logp_T"] for loss_T in (result.loss_T, expected_T))
    torch.testing.assert_close(found, expected)
    assert 0 < result.metrics["clip_fraction"].mean() < 1
    assert found.count_nonzero() == len(found), "no token is left without a gradient"


def continued(objective: GPPO, these: Tokens, logp_T: Tensor) -> Tensor:
    """The function that has its gradient: beyond the range, the ratio goes on as a logarithm."""
    ratio_T = (logp_T - these.old_logp_T).exp()
    low, high = 1 - objective.clip_low, 1 + objective.clip_high
    above_T = high * (1 + objective.beta_high * (ratio_T / high).log())
    below_T = low * (1 + objective.beta_low * (ratio_T / low).log())
    up_T = torch.where((ratio_T > high) & (these.advantage_T > 0), above_T, ratio_T)
    worth_T = torch.where((ratio_T < low) & (these.advantage_T < 0), below_T, up_T)
    if objective.dual_clip is not None:
        worth_T = torch.where(these.advantage_T < 0, worth_T.clamp(max=objective.dual_clip), worth_T)
    return -(these.advantage_T * worth_T).sum()


@pytest.mark.parametrize("objective", [GPPO(), GPPO(clip_low=0.1, beta_low=0.25, beta_high=0.5, dual_clip=1.5)])
def test_finite_differences(objective: GPPO) -> None:
    these = random_tokens(seed=3, gap=0.5, lengths=(40, 20, 30))
    found = gradients(objective(these).loss_T.sum(), these)["logp_T"]
    expected = numerical_gradient(lambda logp_T: continued(objective, these, logp_T), these.logp_T)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("dual_clip", [None, 1.5])
def test_without_weights_it_is_ppo(dual_clip: float | None) -> None:
    these = random_tokens(7, gap=0.6, lengths=(40, 20, 30))
    ours = GPPO(beta_low=0.0, beta_high=0.0, dual_clip=dual_clip)(these)
    ppo = PPOClip(clip_high=0.28, dual_clip=dual_clip)(these)
    torch.testing.assert_close(ours.loss_T, ppo.loss_T)
    assert ours.metrics.keys() == ppo.metrics.keys()
    for name, values in ppo.metrics.items():
        torch.testing.assert_close(ours.metrics[name], values)
    slopes = [gradients(result.loss_T.sum(), these)["logp_T"] for result in (ours, ppo)]
    torch.testing.assert_close(*slopes)


def updates_until_it_is_likely(objective: Objective, *, updates: int = 8, most: int = 400) -> int:
    """Gradient steps until the one right arm of a hundred has a chance of a half; a batch serves `updates` of them."""
    logits_A = torch.zeros(100, dtype=torch.float64, requires_grad=True)
    right_A = torch.zeros(100, dtype=torch.float64)
    right_A[0] = 1.0
    count = 0
    while float(logits_A.detach().softmax(0)[0]) < 0.5:
        old_logp_A = logits_A.detach().log_softmax(0)
        advantage_A = right_A - old_logp_A.exp()[0]
        batch = tokens([[x] for x in old_logp_A.tolist()], advantage=[[x] for x in advantage_A.tolist()])
        for _ in range(updates):
            loss_A = objective(replace(batch, logp_T=logits_A.log_softmax(0))).loss_T
            (gradient_A,) = torch.autograd.grad((old_logp_A.exp() * loss_A).sum(), logits_A)
            logits_A = (logits_A - 20.0 * gradient_A).detach().requires_grad_()
            count += 1
        assert count < most
    return count


def test_a_rare_right_token_is_learned_in_fewer_updates() -> None:
    """It leaves the clip range at once: PPO then waits for the next batch, GPPO goes on."""
    gppo, ppo = (updates_until_it_is_likely(objective) for objective in (GPPO(), PPOClip(clip_high=0.28)))
    assert gppo < ppo / 1.5
