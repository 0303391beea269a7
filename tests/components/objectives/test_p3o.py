"""P3O: both ways of clipping by hand, what cancels, and what the gradient is on policy."""

import itertools
import math
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor

from posttrain.components.objectives.p3o import P3O
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.types import Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens

BOTH = pytest.mark.parametrize("clip", ["separate", "joint"])
Clip = Literal["separate", "joint"]
LOG2 = math.log(2.0)


def pair(log_ratio: tuple[float, float], rewards: tuple[float, float] = (3.0, 1.0)) -> Tokens:
    """Two completions of two tokens and of one, whose log-ratios to the old policy are these."""
    first, second = log_ratio
    return tokens(
        [[-1.0, -2.0], [-3.0]],
        old_logp=[[-1.0 - first / 2, -2.0 - first / 2], [-3.0 - second]],
        advantage=[[rewards[0]] * 2, [rewards[1]]],
        group_N=[0, 0],
    )


def test_separate_clipping_by_hand() -> None:
    """Ratios 2 and 1/2. c of the better one is 2 x 1/2 = 1, of the worse one -2 x 2 = -4.

    min(1 x 2, 1 x 1.2) = 1.2, and min(-4 x 0.5, -4 x 0.8) = -3.2: both have moved far enough, and nothing is left.
    """
    these = pair((LOG2, -LOG2))
    result = P3O(clip="separate")(these)
    assert result.loss_T.tolist() == pytest.approx([-(1.2 - 3.2) / 2] * 3)
    assert {name: values.tolist() for name, values in result.metrics.items()} == {
        "ratio": pytest.approx([2.0, 0.5]),
        "weight": pytest.approx([0.5, 2.0]),
        "clip_fraction": [1.0, 1.0],
    }
    assert not gradients(result.loss_T[0], these)["logp_T"].any()


def test_separate_clipping_is_of_each_completion() -> None:
    """Ratios 1/2 and 1: both are free, and c is 2 for the better one, -2 x 1/2 for the worse one."""
    these = pair((-LOG2, 0.0))
    result = P3O(clip="separate")(these)
    assert result.loss_T[0].item() == pytest.approx(-(2 * 0.5 - 1 * 1) / 2)
    assert gradients(result.loss_T[0], these)["logp_T"].tolist() == pytest.approx([-0.5, -0.5, 0.5])


def test_joint_clipping_by_hand() -> None:
    """The pair has moved by log 2 - log 1.6 = 0.223; c is 2 x 2 x 1.6. Beyond 0.2 there is nothing to gain."""
    these = pair((LOG2, math.log(1.6)))
    result = P3O()(these)
    assert result.loss_T.tolist() == pytest.approx([-6.4 * 0.2 / 2] * 3)
    assert result.metrics["weight"].tolist() == pytest.approx([3.2])
    assert result.metrics["clip_fraction"].tolist() == [1.0]
    assert not gradients(result.loss_T[0], these)["logp_T"].any()
    wide = P3O(epsilon=0.25)(these)
    assert wide.loss_T[0].item() == pytest.approx(-6.4 * math.log(1.25) / 2)
    assert gradients(wide.loss_T[0], these)["logp_T"].tolist() == pytest.approx([-3.2, -3.2, 3.2])


def test_what_moved_the_wrong_way_is_brought_back() -> None:
    """However far: the worse completion has become likelier. Its weight counts, up to the largest one."""
    these = pair((-1.0, 2.0))
    found = gradients(P3O()(these).loss_T[0], these)["logp_T"]
    assert found.tolist() == pytest.approx([-math.e, -math.e, math.e])
    bounded = gradients(P3O(max_weight=1.5)(these).loss_T[0], these)["logp_T"]
    assert bounded.tolist() == pytest.approx([-1.5, -1.5, 1.5])
    separate = P3O(clip="separate", max_weight=5.0)(these).metrics["weight"]
    assert separate.tolist() == pytest.approx([5.0, math.exp(-1)]), "e^2 is too much"


@BOTH
def test_a_constant_for_each_prompt_changes_nothing(clip: Clip) -> None:
    """Not a bit of it, where the rewards are whole numbers; the clipped ratio without a baseline does change."""
    these = random_tokens(2, lengths=(3, 1, 4, 2, 5, 2, 1, 1, 2), gap=0.2)
    reward_N = torch.tensor([1.0, 0.0, 2.0, 0.0, 3.0, 1.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    offset_N = torch.tensor([50.0, -7.0, 1000.0], dtype=torch.float64)[these.group_N]
    plain = replace(these, advantage_T=reward_N[these.sequence_T])
    shifted = replace(these, advantage_T=(reward_N + offset_N)[these.sequence_T])

    def gradient(objective: P3O | PPOClip, of: Tokens) -> Tensor:
        return gradients(objective(of).loss_T.sum(), of)["logp_T"]

    objective = P3O(clip=clip)
    assert gradient(objective, plain).any()
    assert torch.equal(gradient(objective, plain), gradient(objective, shifted))
    assert not torch.allclose(gradient(PPOClip(), plain), gradient(PPOClip(), shifted))


@BOTH
def test_equal_rewards_give_no_gradient(clip: Clip) -> None:
    these = pair((0.7, -0.1), rewards=(4.0, 4.0))
    assert not gradients(P3O(clip=clip)(these).loss_T.sum(), these)["logp_T"].any()


@BOTH
@pytest.mark.parametrize("size", [2, 3, 6])
def test_on_policy_it_is_leave_one_out_reinforce(clip: Clip, size: int) -> None:
    """The mean over pairs of half the difference is the mean over completions of the reward less that of the others."""
    these = random_tokens(4, lengths=(3, 1, 4, 2, 5, 2), gap=0.0)
    these = replace(these, group_N=torch.arange(6) % (6 // size))
    reward_N = torch.tensor([1.0, 0.0, 2.0, 0.5, 3.0, 1.0], dtype=torch.float64)
    baseline = [
        sum(reward_N[j] for j in range(6) if j % (6 // size) == i % (6 // size) and j != i) / (size - 1)
        for i in range(6)
    ]
    left_out_N = reward_N - torch.tensor(baseline, dtype=torch.float64)
    of_pairs = replace(these, advantage_T=reward_N[these.sequence_T])
    one_by_one = replace(these, advantage_T=left_out_N[these.sequence_T])
    result = P3O(clip=clip)(of_pairs)
    assert not result.metrics["clip_fraction"].any()
    first_N = these.length_N.cumsum(0) - these.length_N
    found = gradients(result.loss_T[first_N[: 6 // size]].sum(), of_pairs)["logp_T"]
    expected = gradients(PolicyGradient()(one_by_one).loss_T.sum() / size, one_by_one)["logp_T"]
    torch.testing.assert_close(found, expected)


@BOTH
def test_within_the_range_both_ratios_are_weights(clip: Clip) -> None:
    """The gradient of the pair: w1 w2 (r1 - r2) / 2 times that of its log-ratio; here w1 w2 is e^0.3 e^-0.2."""
    these = pair((0.3, -0.2))
    found = gradients(P3O(clip=clip, epsilon=0.9)(these).loss_T[0], these)["logp_T"]
    assert found.tolist() == pytest.approx([-math.exp(0.1), -math.exp(0.1), math.exp(0.1)])


def written_out(clip: Clip, epsilon: float, log_ratio: Tensor, at: Tensor, reward: list[float]) -> Tensor:
    """The loss of one group by loops over pairs, with c taken `at` other log-ratios."""
    terms = []
    for i, j in itertools.combinations(range(len(reward)), 2):
        if clip == "joint":
            c, u = (reward[i] - reward[j]) * (at[i] + at[j]).exp(), log_ratio[i] - log_ratio[j]
            terms.append(-torch.minimum(c * u, c * u.clamp(-epsilon, epsilon)) / 2)
            continue
        for one, other in ((i, j), (j, i)):
            c, w = (reward[one] - reward[other]) * at[other].exp(), log_ratio[one].exp()
            terms.append(-torch.minimum(c * w, c * w.clamp(1 - epsilon, 1 + epsilon)) / 2)
    return torch.stack(terms).sum() / math.comb(len(reward), 2)


@BOTH
def test_finite_differences(clip: Clip) -> None:
    these = random_tokens(8, lengths=(3, 1, 4, 2, 2), gap=0.2)
    reward = [1.0, 0.0, 2.0, 0.5, -1.0]
    these = replace(
        these,
        group_N=torch.zeros(5, dtype=torch.int64),
        advantage_T=torch.tensor(reward, dtype=torch.float64)[these.sequence_T],
    )
    at = these.sequence_sum(these.logp_T - these.old_logp_T).detach()

    def loss(logp_T: Tensor) -> Tensor:
        return written_out(clip, 0.2, these.sequence_sum(logp_T - these.old_logp_T), at, reward)

    result = P3O(clip=clip)(these)
    stopped = result.metrics["clip_fraction"].mean()
    assert 0 < stopped < 1, "some of both kinds"
    assert result.loss_T[0].item() == pytest.approx(loss(these.logp_T).item())
    found = gradients(result.loss_T[0], these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(loss, these.logp_T), atol=1e-7, rtol=1e-6)


@BOTH
def test_a_larger_group_counts_the_mean_of_its_pairs(clip: Clip) -> None:
    """Rewards 3, 1 and -1: half of the differences to the other two, divided by three pairs."""
    these = tokens([[-1.0], [-2.0], [-3.0]], advantage=[[3.0], [1.0], [-1.0]], group_N=[5, 5, 5])
    found = gradients(P3O(clip=clip)(these).loss_T[0], these)["logp_T"]
    assert found.tolist() == pytest.approx([-(2 + 4) / 6, -(-2 + 2) / 6, -(-4 - 2) / 6])


@BOTH
def test_long_completions_far_away_are_finite(clip: Clip) -> None:
    for gap in (-1.0, 1.0):
        these = tokens(
            [[-2.0] * 3000, [-2.0] * 10],
            old_logp=[[-2.0 - gap] * 3000, [-2.0] * 10],
            advantage=[[1.0] * 3000, [0.0] * 10],
            group_N=[0, 0],
            dtype=torch.float32,
        )
        loss_T = P3O(clip=clip)(these).loss_T
        assert loss_T.isfinite().all()
        assert gradients(loss_T.sum(), these)["logp_T"].isfinite().all()


@BOTH
def test_on_policy_nothing_is_clipped_by_rounding(clip: Clip) -> None:
    """Ratios of exactly 1 in float32: the two branches are the same."""
    these = random_tokens(6, gap=0.0, dtype=torch.float32)
    assert not P3O(clip=clip)(these).metrics["clip_fraction"].any()
