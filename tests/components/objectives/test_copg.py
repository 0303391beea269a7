"""CoPG: a pair by hand, RLOO and IPO as cases of it, and the paper's three-armed bandit with exact expectations."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from posttrain.components.objectives import Objective
from posttrain.components.objectives.copg import CoPG
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.preferences import Pairs
from posttrain.components.preferences.ipo import IPO
from posttrain.signals import logp_of
from posttrain.types import Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens


def of_three(rewards: list[float], group_N: list[int]) -> Tokens:
    """Log-ratios to the reference of 1, -2 and 0.5."""
    return tokens(
        [[-1.0, -2.0], [-3.0], [-0.5, -0.5]],
        reference_logp={"reference": [[-2.0, -2.0], [-1.0], [-1.0, -0.5]]},
        advantage=[[r] * n for r, n in zip(rewards, (2, 1, 2), strict=True)],
        group_N=group_N,
    )


def test_a_pair_by_hand() -> None:
    """Rewards 2 and 1, margin 1 - -2 = 3: the residual is 1 - 0.5 x 3; the third has nobody to be compared with."""
    these = of_three([2.0, 1.0, 7.0], [0, 0, 1])
    result = CoPG(beta=0.5)(these)
    assert result.loss_T.tolist() == pytest.approx([0.25, 0.25, 0.25, 0.0, 0.0])
    assert {name: values.tolist() for name, values in result.metrics.items()} == {
        "pair_margin": [3.0],
        "pair_residual": [0.5],
    }
    found = gradients(result.loss_T[0], these)["logp_T"]
    assert found.tolist() == pytest.approx([0.5, 0.5, -0.5, 0.0, 0.0]), "too far apart: they are drawn together"


def test_the_margin_is_reported_in_the_direction_of_the_reward() -> None:
    result = CoPG(beta=0.5)(of_three([1.0, 2.0, 2.0], [0, 0, 0]))
    assert result.metrics["pair_margin"].tolist() == [-3.0, -0.5], "the pair of equals has no direction"
    assert result.metrics["pair_residual"].tolist() == pytest.approx([1 + 1.5, 1 + 0.25, 1.25])


def test_equal_rewards_draw_log_ratios_together() -> None:
    """It is no zero: the residual is -0.5 x 3 from the margin alone."""
    these = of_three([4.0, 4.0, 0.0], [0, 0, 1])
    result = CoPG(beta=0.5)(these)
    assert result.loss_T[0].item() == pytest.approx(1.5**2)
    assert gradients(result.loss_T[0], these)["logp_T"].tolist() == pytest.approx([1.5, 1.5, -1.5, 0.0, 0.0])


def test_nobody_to_be_compared_with() -> None:
    these = of_three([1.0, 2.0, 3.0], [0, 1, 2])
    result = CoPG()(these)
    assert result.loss_T.tolist() == [0.0] * 5
    assert not gradients(result.loss_T.sum(), these)["logp_T"].any()


def regularised_rloo(these: Tokens, beta: float) -> Tensor:
    """[N] reward minus beta times log-ratio, minus the mean of the same of the others of the group: by loops."""
    gain = these.sequence_sum(these.logp_T - these[logp_of("reference")]).tolist()
    reward = these.last(these.advantage_T).tolist()
    worth = [r - beta * d for r, d in zip(reward, gain, strict=True)]
    groups = these.group_N.tolist()
    others = [[worth[j] for j, h in enumerate(groups) if h == g and j != i] for i, g in enumerate(groups)]
    return torch.tensor([w - float(np.mean(o)) for w, o in zip(worth, others, strict=True)], dtype=torch.float64)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_gradient_is_that_of_rloo_with_regularised_rewards(size: int) -> None:
    """The mean over the pairs of k completions has 2 / k times the gradient of the sum over completions."""
    these = random_tokens(1, lengths=(3, 1, 4, 2) * 3, needs=(logp_of("reference"),), advantage_by="sequence")
    these = replace(these, group_N=torch.arange(12) % (12 // size))
    first_N = these.length_N.cumsum(0) - these.length_N
    one_a_group_N = torch.arange(12) < 12 // size
    loss = CoPG(beta=0.3)(these).loss_T[first_N[one_a_group_N]].sum()
    expected_N = -2.0 / size * regularised_rloo(these, 0.3)
    torch.testing.assert_close(gradients(loss, these)["logp_T"], expected_N[these.sequence_T])


def test_finite_differences() -> None:
    objective, these = CoPG(beta=0.3), random_tokens(3, needs=(logp_of("reference"),))
    found = gradients(objective(these).loss_T.sum(), these)["logp_T"]
    numerical = numerical_gradient(lambda x_T: objective(replace(these, logp_T=x_T)).loss_T.sum(), these.logp_T)
    torch.testing.assert_close(found, numerical, atol=1e-7, rtol=1e-6)


def test_a_difference_of_one_half_is_ipo() -> None:
    these = of_three([0.25, -0.25, 0.0], [0, 0, 1])
    pairs = Pairs(
        logp_P2=torch.tensor([[-3.0, -3.0]]),
        length_P2=torch.tensor([[2, 1]]),
        reference_logp_P2={logp_of("reference"): torch.tensor([[-4.0, -1.0]])},
    )
    for beta in (0.1, 0.5):
        assert CoPG(beta=beta)(these).loss_T[0].item() == pytest.approx(beta / 2 * IPO(beta=beta)(pairs).loss_P.item())


def test_the_reference_is_the_role_that_it_names() -> None:
    assert CoPG(reference="teacher").needs == {logp_of("teacher")}


REWARD_A = torch.tensor([2.5, 2.0, 1.0], dtype=torch.float64)
WRITERS_2A = torch.tensor([[0.1, 0.2, 0.7], [0.05, 0.05, 0.9]], dtype=torch.float64)
BETA = 0.5


def regret(logits_A: Tensor) -> float:
    """How far reward minus beta times the divergence from a uniform reference is below its optimum."""
    policy_A = logits_A.detach().softmax(0)
    reached = (policy_A * (REWARD_A - BETA * (policy_A.log() + math.log(3)))).sum()
    return float(BETA * ((REWARD_A / BETA).exp().sum() / 3).log() - reached)


def expected_loss(objective: Objective, logits_A: Tensor, advantage_A: Tensor) -> Tensor:
    """Over the nine pairs of one arm from either writer, each a group of two completions of a token."""
    arms_P2 = torch.cartesian_prod(torch.arange(3), torch.arange(3))
    chance_P = WRITERS_2A[0][arms_P2[:, 0]] * WRITERS_2A[1][arms_P2[:, 1]]
    arm_N = arms_P2.flatten()
    these = tokens(
        [[0.0]] * 18,
        advantage=advantage_A[arm_N][:, None].tolist(),
        reference_logp={"reference": [[-math.log(3)]] * 18},
        group_N=torch.arange(9).repeat_interleave(2).tolist(),
    )
    these = replace(these, logp_T=logits_A.log_softmax(0)[arm_N])
    return (objective(these).loss_T * chance_P.repeat_interleave(2)).sum() / 2


def test_the_bandit_is_solved_from_what_others_wrote() -> None:
    """The writers hardly ever take the best arm; the optimum is reference exp(R / beta) all the same."""
    logits_A = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    assert regret(logits_A) == pytest.approx(0.292, abs=1e-3)
    optimizer = torch.optim.LBFGS([logits_A], max_iter=100, tolerance_grad=1e-12, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = expected_loss(CoPG(beta=BETA), logits_A, REWARD_A)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    assert regret(logits_A) == pytest.approx(0.0, abs=1e-9)
    torch.testing.assert_close(logits_A.detach().softmax(0), (REWARD_A / BETA).softmax(0), atol=1e-5, rtol=0)
    assert closure().item() == pytest.approx(0.0, abs=1e-9), "no pair has a loss left"


def learned_one_by_one(*, value: bool) -> Tensor:
    """The same data without pairs: regularised rewards, with what the policy gets as the baseline, or without any."""
    logits_A = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logits_A], lr=0.05)
    for _ in range(500):
        logp_A = logits_A.detach().log_softmax(0)
        baseline = (logp_A.exp() * REWARD_A).sum() if value else 0.0
        optimizer.zero_grad()
        advantage_A = REWARD_A - BETA * (logp_A + math.log(3)) - baseline
        expected_loss(PolicyGradient(), logits_A, advantage_A).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return logits_A


@pytest.mark.slow
def test_without_the_other_completion_as_the_baseline_it_is_not() -> None:
    """Without any baseline every arm is raised as often as it was written: worse than where it began (0.292)."""
    assert regret(learned_one_by_one(value=False)) == pytest.approx(0.638, abs=2e-3)
    assert regret(learned_one_by_one(value=True)) == pytest.approx(0.015, abs=2e-3)
