"""TOPR: weights by hand, the objective that it is the gradient of, and what becomes of a bandit on fixed data."""

import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.objectives.tapered import Tapered
from posttrain.types import Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens

LOG2 = math.log(2.0)
BOUNDS = [(1.0, 1.0), (0.0, 1.0), (0.0, 0.0), (0.5, 2.0), (0.0, 3.0)]


def test_the_ratio_is_that_of_the_whole_response() -> None:
    """Ratios 2 * 2 = 4 and 1/2 * 1/4 = 1/8; each once with a good and once with a bad advantage."""
    now, then = [[-1.0, -2.0], [-3.0, -1.0]], [[-1.0 - LOG2, -2.0 - LOG2], [-3.0 + LOG2, -1.0 + 2 * LOG2]]
    these = tokens(now * 2, behavior_logp=then * 2, advantage=[[1.0, 1.0]] * 2 + [[-2.0, -2.0]] * 2)
    result = Tapered()(these)
    assert result.loss_T.tolist() == pytest.approx([1, 2, 3, 1, 2 * -1, 2 * -2, 2 * -3 / 8, 2 * -1 / 8])
    assert result.metrics["weight/positive"].tolist() == [1.0] * 4
    assert result.metrics["weight/negative"].tolist() == pytest.approx([1, 1, 1 / 8, 1 / 8])
    wide = Tapered(positive=(0.25, 3.0), negative=(0.5, 8.0))(these)
    assert wide.metrics["weight/positive"].tolist() == pytest.approx([3, 3, 0.25, 0.25])
    assert wide.metrics["weight/negative"].tolist() == pytest.approx([4, 4, 0.5, 0.5])


def test_or_that_of_each_token() -> None:
    these = tokens([[-1.0, -2.0]], behavior_logp=[[-1.0 + LOG2, -2.0 - LOG2]], advantage=[[-1.0, -1.0]])
    assert Tapered(ratio="token")(these).loss_T.tolist() == pytest.approx([-0.5, -2.0])
    assert Tapered()(these).loss_T.tolist() == pytest.approx([-1.0, -2.0])


def taper(log_ratio_N: Tensor, low: float, high: float) -> Tensor:
    """T of the paper: the ratio, continued by the logarithm beyond the bounds."""
    ratio_N = log_ratio_N.exp()
    above_N = high * (1 + log_ratio_N - math.log(high)) if high else torch.zeros_like(ratio_N)
    below_N = low * (1 + log_ratio_N - math.log(low)) if low else torch.zeros_like(ratio_N)
    return torch.where(ratio_N > high, above_N, torch.where(ratio_N < low, below_N, ratio_N))


def true_loss(objective: Tapered, these: Tokens, logp_T: Tensor) -> Tensor:
    """-A T(pi / mu) summed over responses; its bounds are those of the sign of A."""
    log_ratio_N = these.sequence_sum(logp_T - these.behavior_logp_T)
    advantage_N = these.last(these.advantage_T)
    up_N, down_N = taper(log_ratio_N, *objective.positive), taper(log_ratio_N, *objective.negative)
    return -(advantage_N * torch.where(advantage_N > 0, up_N, down_N)).sum()


@pytest.mark.parametrize("negative", BOUNDS)
@pytest.mark.parametrize("positive", BOUNDS)
def test_it_is_the_gradient_of_the_tapered_objective(
    positive: tuple[float, float], negative: tuple[float, float]
) -> None:
    objective = Tapered(positive=positive, negative=negative)
    these = random_tokens(3, lengths=(3, 1, 4, 2, 5, 2, 1, 1), gap=0.8, advantage_by="sequence")
    numerical = numerical_gradient(lambda logp_T: true_loss(objective, these, logp_T), these.logp_T)
    torch.testing.assert_close(
        gradients(objective(these).loss_T.sum(), these)["logp_T"], numerical, atol=1e-7, rtol=1e-6
    )


def test_the_negative_part_is_bounded_and_the_naive_one_is_not() -> None:
    """The true loss of a bad response that the policy leaves behind goes to 0; with a floor it falls for ever."""
    these = tokens([[-1.0]], behavior_logp=[[-1.0]], advantage=[[-1.0]])
    far = [true_loss(Tapered(), these, torch.tensor([-1.0 - d])).item() for d in (0.0, 5.0, 50.0, 500.0)]
    assert far == pytest.approx([1.0, math.exp(-5), 0.0, 0.0])
    floored = Tapered(negative=(0.1, 1.0))
    assert true_loss(floored, these, torch.tensor([-500.0])).item() < -40


def test_on_policy_it_is_reinforce_and_right_samples_are_imitated() -> None:
    same = random_tokens(gap=0.0, advantage_by="sequence")
    torch.testing.assert_close(Tapered()(same).loss_T, PolicyGradient()(same).loss_T)
    far = random_tokens(gap=2.0, advantage_by="sequence")
    right = replace(far, advantage_T=torch.ones_like(far.advantage_T))
    assert torch.equal(Tapered()(right).loss_T, -right.logp_T)


def test_a_long_response_far_away_is_finite() -> None:
    for gap in (-1.0, 1.0):
        these = tokens([[-2.0] * 3000], behavior_logp=[[-2.0 - gap] * 3000], advantage=[[-1.0] * 3000])
        result = Tapered(negative=(0.0, 1e6))(these)
        assert result.loss_T.isfinite().all()
        assert result.metrics["weight/negative"][0].item() == (1e6 if gap > 0 else 0.0)


def test_what_nobody_sampled_is_measured_by_the_old_policy() -> None:
    these = tokens([[-1.0]], old_logp=[[-1.0 + LOG2]], behavior_logp=[[math.nan]], advantage=[[-1.0]])
    assert Tapered()(these).loss_T.tolist() == pytest.approx([-0.5])


def test_bounds_are_in_order() -> None:
    with pytest.raises(ValidationError, match=r"the lower bound comes first: \[0, 1\]"):
        Tapered(negative=(1.0, 0.0))


def trained_on_fixed_data(objective: Tapered, steps: int) -> tuple[float, float]:
    """Largest logit and probability of the right one of ten arms, after full-batch descent on pulls of a uniform mu."""
    advantage_A = torch.full((10,), -1.0, dtype=torch.float64)
    advantage_A[0] = 1.0
    logits_A = torch.zeros(10, dtype=torch.float64, requires_grad=True)
    pulls = [[math.log(0.1)]] * 10
    data = tokens(pulls, behavior_logp=pulls, advantage=advantage_A[:, None].tolist())
    for _ in range(steps):
        loss = objective(replace(data, logp_T=logits_A.log_softmax(0))).loss_T.mean()
        (gradient_A,) = torch.autograd.grad(loss, logits_A)
        logits_A = (logits_A - 0.5 * gradient_A).detach().requires_grad_()
    return logits_A.abs().max().item(), logits_A.softmax(0)[0].item()


@pytest.mark.slow
def test_on_fixed_data_the_taper_converges_and_plain_reinforce_diverges() -> None:
    halfway, _ = trained_on_fixed_data(Tapered(negative=(1.0, 1.0)), 1000)
    naive, _ = trained_on_fixed_data(Tapered(negative=(1.0, 1.0)), 3000)
    largest, right = trained_on_fixed_data(Tapered(), 3000)
    only_largest, only_right = trained_on_fixed_data(Tapered(negative=(0.0, 0.0)), 3000)
    assert naive > 1000 and naive > 2 * halfway, "it grows with the number of steps"
    assert largest < 10 and only_largest < 10
    assert right > 0.999 > only_right > 0.99
