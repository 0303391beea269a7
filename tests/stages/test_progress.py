"""The estimator of progress: its loss, what it reads, and that totals are enough to find contributions."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.recorded import Recorded
from posttrain.signals import SCORE
from posttrain.stages.progress import ProgressTraining, examples_of, total_error
from posttrain.types import Group, Tokens
from tests.builders import having, score, tokens, trajectory

GAINS = torch.tensor([0.0, 0.1, 0.3, 0.0, 0.0, 0.2], dtype=torch.float64)


def said(score_T: Tensor, lengths: list[int], rewards: list[float]) -> Tokens:
    return replace(tokens([[0.0] * length for length in lengths], reward_N=rewards), signals={SCORE: score_T})


def test_the_loss_by_hand_and_its_gradient() -> None:
    """Sums 0.5 + 1 - 0.25 = 1.25 and -2 for scores 1 and 0.5."""
    score_T = torch.tensor([0.5, 1.0, -0.25, -2.0], dtype=torch.float64, requires_grad=True)
    result = total_error(said(score_T, [3, 1], [1.0, 0.5]))
    assert result.loss_T.tolist() == pytest.approx([0.0625] * 3 + [6.25])
    assert result.metrics["total_error"].tolist() == pytest.approx([0.25, 2.5])
    assert torch.autograd.gradcheck(lambda x: total_error(said(x, [3, 1], [1.0, 0.5])).loss_T, score_T)


def test_with_the_mean_of_sequences_a_rollout_counts_once() -> None:
    lengths = np.array([3, 1])
    weight_N = torch.from_numpy(Sequences().weights(lengths, np.arange(2))).double()
    loss_T = total_error(said(torch.tensor([0.5, 1.0, -0.25, -2.0]).double(), [3, 1], [1.0, 0.5])).loss_T
    total = (loss_T * weight_N.repeat_interleave(torch.from_numpy(lengths))).sum()
    assert total.item() == pytest.approx((0.0625 + 6.25) / 2)


def test_only_the_ends_of_turns_are_read() -> None:
    one = trajectory(3)
    prompt, turn = one.segments
    two = replace(one, segments=(prompt, turn, replace(prompt, actor="environment"), replace(turn, turn=1)))
    examples = examples_of([Group(trajectories=(two.scored(score(1.0)), one.scored(score(0.25))))])
    assert [e.positions.tolist() for e in examples] == [[5, 11], [5]]
    assert [e.token_ids.tolist() for e in examples] == [two.token_ids.tolist(), one.token_ids.tolist()]
    assert [e.reward for e in examples] == [1.0, 0.25]


def test_its_roles_are_those_that_sample_and_the_one_that_learns() -> None:
    stage = ProgressTraining(rollout=Recorded(), reward=Match(), reducer=Sequences(), role="estimator", steps=7)
    assert stage.roles == {"policy", "estimator", "behavior"}
    assert stage.total_steps([]) == 7


def test_totals_are_enough_to_find_what_each_turn_contributed() -> None:
    """2000 rollouts of 8 turns with 6 binary features, whose gains add up to the score; only scores are seen."""
    generator = torch.Generator().manual_seed(0)
    features_TF = torch.randint(2, (2000 * 8, 6), generator=generator).double()
    true_T = features_TF @ GAINS
    rewards = true_T.view(2000, 8).sum(1)
    weight_F = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([weight_F], lr=0.02)
    rollouts = tokens([[0.0] * 8] * 2000, reward_N=rewards.tolist())

    def learn(steps: int) -> Tensor:
        for _ in range(steps):
            optimizer.zero_grad()
            total_error(having(rollouts, {SCORE: features_TF @ weight_F})).loss_T.mean().backward()
            optimizer.step()
        return (features_TF @ weight_F).detach()

    early_T, late_T = learn(1), learn(400)
    assert torch.corrcoef(torch.stack([early_T, true_T]))[0, 1] < 0.8
    assert torch.corrcoef(torch.stack([late_T, true_T]))[0, 1] > 0.999
    assert (late_T.view(2000, 8).sum(1) - rewards).abs().max() < 0.02
    torch.testing.assert_close(weight_F.detach(), GAINS, atol=0.005, rtol=0)
