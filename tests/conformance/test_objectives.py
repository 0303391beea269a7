"""Laws of the objectives, for every member on arrival."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.objectives import Objective
from posttrain.signals import OLD_VALUE, VALUE, Signal
from posttrain.types import Tokens
from tests.builders import batch, gradients, random_tokens, reordered, without
from tests.conformance._members import each, members

LAWS = {"zero_advantage", "reinforce", "bandit"}

every_member = pytest.mark.parametrize("objective", members(Objective))


def on_policy(objective: Objective, seed: int = 0) -> Tokens:
    return random_tokens(seed, needs=objective.needs, gap=0.0, advantage_by="sequence")


@every_member
def test_exceptions_are_laws(objective: Objective) -> None:
    assert objective.exceptions <= LAWS


@every_member
@each(dtype=[torch.float32, torch.float64])
def test_one_loss_a_token(objective: Objective, dtype: torch.dtype) -> None:
    tokens = random_tokens(needs=objective.needs, dtype=dtype)
    result = objective(tokens)
    assert result.loss_T.shape == tokens.logp_T.shape
    assert result.loss_T.dtype == dtype
    assert result.loss_T.requires_grad
    for name, values in result.metrics.items():
        assert values.ndim == 1, name
        assert objective.whole_groups or len(values) <= len(tokens.logp_T), name
        assert not values.requires_grad, f"{name} would keep the graph alive"
        assert values.isfinite().all(), name


@every_member
def test_needs_are_exact(objective: Objective) -> None:
    """What is not declared is not read (it would be None), and what is declared is read (it costs a forward pass)."""
    tokens = random_tokens(needs=objective.needs)
    objective(tokens)
    for need in objective.needs:
        with pytest.raises((AssertionError, AttributeError, KeyError, TypeError)):
            objective(without(tokens, need))


@every_member
def test_same_tokens_same_loss_and_nothing_written(objective: Objective) -> None:
    tokens, untouched = random_tokens(needs=objective.needs), random_tokens(needs=objective.needs)
    first, second = objective(tokens).loss_T, objective(tokens).loss_T
    assert torch.equal(first, second)
    for name, before in vars(untouched).items():
        if isinstance(before, Tensor):
            assert torch.equal(before, getattr(tokens, name)), f"{name} was changed in place"


@every_member
def test_order_of_sequences_does_not_matter(objective: Objective) -> None:
    tokens = random_tokens(needs=objective.needs)
    shuffled, positions = reordered(tokens, [4, 1, 5, 0, 3, 2])
    torch.testing.assert_close(objective(shuffled).loss_T, objective(tokens).loss_T[positions])


@every_member
@each(gap=[20.0, -20.0, 80.0, -80.0, 200.0, -200.0], advantage=[1.0, -1.0])
def test_finite_at_extreme_ratios(objective: Objective, gap: float, advantage: float) -> None:
    tokens = random_tokens(needs=objective.needs, dtype=torch.float32)
    likely, unlikely = torch.full_like(tokens.logp_T, -5.0), torch.full_like(tokens.logp_T, -5.0 - abs(gap))
    logp_T, other_T = (likely, unlikely) if gap > 0 else (unlikely, likely)
    tokens = replace(
        tokens,
        logp_T=logp_T.requires_grad_(),
        old_logp_T=other_T,
        behavior_logp_T=other_T,
        signals={signal: other_T if signal.name == "logp" else x for signal, x in tokens.signals.items()},
        advantage_T=torch.full_like(other_T, advantage),
    )
    loss_T = objective(tokens).loss_T
    assert loss_T.isfinite().all()
    for name, gradient in gradients(loss_T.sum(), tokens).items():
        assert gradient.isfinite().all(), name


@every_member
def test_zero_advantage_gives_zero_gradient(objective: Objective) -> None:
    tokens = random_tokens(needs=objective.needs)
    tokens = replace(tokens, advantage_T=torch.zeros_like(tokens.advantage_T))
    found = gradients(objective(tokens).loss_T.sum(), tokens)
    holds = all(not gradient.any() for gradient in found.values())
    assert holds == ("zero_advantage" not in objective.exceptions)


@every_member
def test_on_policy_gradient_is_reinforce(objective: Objective) -> None:
    """With one advantage per sequence, so that ratios of whole sequences obey the law too."""
    tokens = on_policy(objective)
    found = gradients(objective(tokens).loss_T.sum(), tokens)
    holds = torch.allclose(found.pop("logp_T"), -tokens.advantage_T, atol=1e-9)
    holds = holds and all(not gradient.any() for gradient in found.values())
    assert holds == ("reinforce" not in objective.exceptions)


@every_member
def test_solves_a_bandit(objective: Objective) -> None:
    """Six four-armed bandits at once, each a group of 16 pulls; two updates per batch, so that ratios matter."""
    best_arm = probability_of_best_arm(objective)
    assert bool((best_arm > 0.9).all()) == ("bandit" not in objective.exceptions), best_arm


def probability_of_best_arm(objective: Objective, *, bandits: int = 6, pulls: int = 16, batches: int = 50) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    reward_BA = torch.stack([torch.tensor([0.0, 0.3, 0.6, 1.0]).roll(b) for b in range(bandits)])
    logits_BA = torch.zeros(bandits, 4, requires_grad=True)
    optimizer = torch.optim.Adam([logits_BA], lr=0.1)
    estimator, rollouts = GroupMean(), batch([[0.0] * pulls] * bandits, length=1)
    for _ in range(batches):
        arm_BP = torch.multinomial(logits_BA.detach().softmax(1), pulls, replacement=True, generator=generator)
        reward_BP = reward_BA.gather(1, arm_BP)
        scored = replace(rollouts, token_rewards=tuple(reward_BP.numpy().reshape(-1, 1)))
        _, credit = estimator(estimator.start(), scored)
        advantage_T = torch.from_numpy(np.concatenate(credit.advantages))
        old_logp_T = logits_BA.detach().log_softmax(1).gather(1, arm_BP).flatten()
        for _ in range(2):
            tokens = bandit_tokens(
                logits_BA.log_softmax(1), arm_BP, reward_BP, old_logp_T, advantage_T, objective.needs
            )
            optimizer.zero_grad()
            objective(tokens).loss_T.sum().backward()
            optimizer.step()
    return logits_BA.detach().softmax(1).gather(1, reward_BA.argmax(1, keepdim=True)).flatten()


def bandit_tokens(
    logp_BA: Tensor,
    arm_BP: Tensor,
    reward_BP: Tensor,
    old_logp_T: Tensor,
    advantage_T: Tensor,
    needs: frozenset[Signal],
) -> Tokens:
    """Every pull is a sequence of one token; the reference is the uniform policy."""
    bandits, pulls = arm_BP.shape
    entropy_T = -(logp_BA * logp_BA.exp()).sum(1).repeat_interleave(pulls)
    uniform_T, zero_T = torch.full_like(old_logp_T, -math.log(4.0)), torch.zeros_like(old_logp_T)

    said = {
        "logp": uniform_T,
        "entropy": entropy_T,
        "logit": logp_BA.gather(1, arm_BP).flatten(),
        "forward_kl": (-math.log(4.0) - logp_BA.mean(1)).repeat_interleave(pulls),
        "reverse_kl": math.log(4.0) - entropy_T,
        "noise": torch.ones_like(old_logp_T),
        "label_logp": logp_BA.gather(1, arm_BP).flatten(),
        **dict.fromkeys(("latent_logp", "latent_error"), zero_T),
    }
    signals = {need: said[need.name] for need in needs if need.name in said}
    signals |= {VALUE: zero_T.clone().requires_grad_()} if VALUE in needs else {}
    signals |= {OLD_VALUE: zero_T} if OLD_VALUE in needs else {}
    return Tokens(
        logp_T=logp_BA.gather(1, arm_BP).flatten(),
        old_logp_T=old_logp_T,
        behavior_logp_T=old_logp_T,
        advantage_T=advantage_T,
        value_target_T=zero_T if VALUE in needs else None,
        signals=signals,
        sequence_T=torch.arange(bandits * pulls),
        turn_T=torch.zeros(bandits * pulls, dtype=torch.int64),
        length_N=torch.ones(bandits * pulls, dtype=torch.int64),
        group_N=torch.arange(bandits).repeat_interleave(pulls),
        reward_N=reward_BP.flatten(),
        solved_N=(reward_BP == 1).float().flatten(),
        group_solved_N=(reward_BP == 1).float().mean(1).repeat_interleave(pulls),
    )


@every_member
def test_old_log_probabilities_of_demonstrations_are_read_or_it_declares_so(objective: Objective) -> None:
    tokens = random_tokens(needs=objective.needs)
    shown_T = tokens.sequence_T == 1
    nan_T = tokens.old_logp_T.masked_fill(shown_T, math.nan)
    taught = replace(tokens, behavior_logp_T=tokens.behavior_logp_T.masked_fill(shown_T, math.nan), old_logp_T=nan_T)
    assert objective.uses_old or objective(taught).loss_T.isfinite().all()


@every_member
def test_tokens_that_nobody_sampled_have_a_loss(objective: Objective) -> None:
    """A demonstration has no behaviour policy (NaN); it has an old log-probability, the learner's own."""
    tokens = random_tokens(needs=objective.needs)
    for shown_T in (tokens.sequence_T == 1, torch.ones_like(tokens.sequence_T, dtype=torch.bool)):
        taught = replace(tokens, behavior_logp_T=tokens.behavior_logp_T.masked_fill(shown_T, math.nan))
        loss_T = objective(taught).loss_T
        assert loss_T.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in gradients(loss_T.sum(), taught).values())
