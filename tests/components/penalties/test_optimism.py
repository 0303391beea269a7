"""Optimism: by hand beside a pair, its constant gradient, and a bandit that begins in the wrong place."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.penalties.optimism import Optimism
from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.signals import OLD_LOGP, logp_of
from posttrain.stages.loss import combine
from posttrain.types import Tokens
from tests.builders import gradients, numerical_gradient, tokens

NAN = math.nan


def two_groups() -> Tokens:
    """Group 0: a response that was sampled, and two completions of the data's. Group 1: two sampled, one given.

    Log-ratios of the sampled ones: -3 + 2 = -1; then -1 + 4 = 3 and -2 + 1 = -1, which are 1 in the mean.
    """
    return tokens(
        [[-1.0, -2.0], [-5.0], [-6.0], [-1.0], [-2.0], [-7.0]],
        behavior_logp=[[-1.0, -2.0], [NAN], [NAN], [-1.0], [-2.0], [NAN]],
        reference_logp={"reference": [[-0.5, -1.5], [-1.0], [-1.0], [-4.0], [-1.0], [-1.0]]},
        advantage=[[0.0, 0.0], [1.0], [-1.0], [2.0], [1.0], [0.0]],
        group_N=[0, 0, 0, 1, 1, 1],
    )


def test_the_term_by_hand() -> None:
    these = two_groups()
    term = Optimism(coefficient=0.5).in_loss(these)
    assert term is not None
    assert term.loss_T.tolist() == pytest.approx([-0.5] * 4 + [0.5] * 3)
    assert term.metrics["log_ratio"].tolist() == pytest.approx([-1.0, 3.0, -1.0])


def test_the_gradient_is_the_coefficient_over_the_number_of_groups() -> None:
    """alpha beta / B for each token of what was sampled, however likely it is, and nothing for the data's."""
    these = two_groups()
    weight_N = Sequences().weights(these.length_N.numpy(), these.group_N.numpy())
    weight_T = torch.from_numpy(np.repeat(weight_N, these.length_N.numpy())).double()
    term = Optimism(coefficient=0.5).in_loss(these)
    assert term is not None
    found = gradients((term.loss_T * weight_T).sum(), these)["logp_T"].tolist()
    assert found == pytest.approx([0.25, 0.25, 0.0, 0.0, 0.125, 0.125, 0.0])


def test_finite_differences() -> None:
    these, term = two_groups(), Optimism(coefficient=0.3)

    def total(logp_T: torch.Tensor) -> torch.Tensor:
        result = term.in_loss(replace(these, logp_T=logp_T))
        assert result is not None
        return result.loss_T.sum()

    found = gradients(total(these.logp_T), these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(total, these.logp_T), atol=1e-7, rtol=1e-6)


def test_the_reference_may_be_the_policy_as_the_step_began() -> None:
    these = tokens([[-1.0]], old_logp=[[-4.0]])
    term = Optimism(coefficient=2.0, role="old").in_loss(these)
    assert term is not None and term.loss_T.tolist() == [6.0]
    assert Optimism(role="old").needs == {OLD_LOGP}
    assert Optimism().needs == {logp_of("reference")} and Optimism().whole_groups


def test_what_nobody_sampled_has_no_term() -> None:
    these = tokens([[-1.0], [-2.0]], behavior_logp=[[NAN], [NAN]], reference_logp={"reference": [[-3.0], [-3.0]]})
    term = Optimism(coefficient=1.0).in_loss(these)
    assert term is not None
    assert term.loss_T.tolist() == [0.0, 0.0] and not len(term.metrics["log_ratio"])
    assert not gradients(term.loss_T.sum(), these)["logp_T"].any()


def test_beside_dpo_by_hand() -> None:
    """Group 0: the data's pair at a DPO margin of (-5 + 1) - (-6 + 1) = 1, and the sampled one, which is in no pair."""
    these = two_groups()
    objective = Pairwise(loss=DPO(beta=0.1), pairs="extremes")
    loss_T = combine(objective, {"optimism": Optimism(coefficient=0.5)}, None)(these).loss_T
    first = math.log1p(math.exp(-0.1)) - 0.5
    second = math.log1p(math.exp(-0.1 * (3.0 - -6.0))) + 0.5
    assert loss_T.tolist() == pytest.approx([first] * 4 + [second] * 3)


def test_without_weight_it_is_dpo_to_the_bit() -> None:
    objective = Pairwise(loss=DPO(), pairs="extremes")
    losses, slopes = [], []
    for added in ({}, {"optimism": Optimism(coefficient=0.0)}):
        these = two_groups()
        loss_T = combine(objective, added, None)(these).loss_T
        losses.append(loss_T)
        slopes.append(gradients(loss_T.sum(), these)["logp_T"])
    assert torch.equal(*losses) and torch.equal(*slopes)


def test_a_negative_weight_is_rpo_with_the_writers_responses_as_the_baseline() -> None:
    these = two_groups()
    term = Optimism(coefficient=-0.5).in_loss(these)
    assert term is not None
    likelihood_N = these.sequence_sum(these.logp_T)
    (expected_T,) = torch.autograd.grad(-0.5 * 4 * likelihood_N[0] - 0.5 * 3 * likelihood_N[3:5].mean(), these.logp_T)
    torch.testing.assert_close(gradients(term.loss_T.sum(), these)["logp_T"], expected_T)


ARMS, MEDIOCRE, BEST = 20, 10, 19


def masses_after_rounds(
    coefficient: float, seed: int, *, rounds: int = 5, comparisons: int = 100
) -> tuple[float, float]:
    """Probabilities of the arm that is written greedily at first, 0.6 there, and of the best one, 0.01 there.

    In each round the greedy arm is ranked with two that the policy draws, and 10 updates are made.
    """
    rng = np.random.default_rng(seed)
    chance_A = np.full(ARMS, 0.39 / (ARMS - 2))
    chance_A[MEDIOCRE], chance_A[BEST] = 0.6, 0.01
    logits_A = torch.from_numpy(np.log(chance_A))
    objective, optimism = Pairwise(loss=DPO(reference="old"), pairs="extremes"), Optimism(role="old")
    per_token = combine(objective, {"optimism": replace(optimism, coefficient=coefficient)}, None)
    for _ in range(rounds):
        old_A = logits_A.log_softmax(0)
        drawn_P2 = rng.choice(ARMS, (comparisons, 2), p=old_A.exp().numpy())
        arm_T = torch.from_numpy(np.insert(drawn_P2, 0, int(old_A.argmax()), axis=1).flatten())
        fixed = tokens(
            [[0.0]] * len(arm_T),
            old_logp=old_A[arm_T, None].tolist(),
            behavior_logp=[[0.0], [NAN], [NAN]] * comparisons,
            advantage=(arm_T[:, None] / ARMS).tolist(),
            group_N=[g for g in range(comparisons) for _ in range(3)],
        )
        for _ in range(10):
            leaf_A = logits_A.requires_grad_()
            loss = per_token(replace(fixed, logp_T=leaf_A.log_softmax(0)[arm_T])).loss_T.mean()
            (slope_A,) = torch.autograd.grad(loss, leaf_A)
            logits_A = (leaf_A - 4.0 * slope_A).detach()
    chance_A = logits_A.softmax(0).numpy()
    return float(chance_A[MEDIOCRE]), float(chance_A[BEST])


@pytest.mark.slow
def test_a_mediocre_arm_that_is_written_at_first_is_left_sooner() -> None:
    """Means over seeds; 0.01 is an alpha of 0.1 at a beta of 0.1, a hundred times the paper's."""
    plain, little, much = (
        np.mean([masses_after_rounds(coefficient, seed) for seed in range(5)], axis=0)
        for coefficient in (0.0, 0.01, 0.1)
    )
    assert 0.6 > plain[0] > 2 * little[0] > 4 * much[0]
    assert 0.01 < plain[1] < little[1] < much[1]
