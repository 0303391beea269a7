"""Reg-GRPO: losses by hand, the correlation that it comes to, the first gradient, and groups that teach nothing."""

import math
from dataclasses import replace
from typing import Literal

import pytest
import torch

from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.objectives.reg_grpo import RegGRPO
from posttrain.types import Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens

BOTH = pytest.mark.parametrize("statistics", ["differentiated", "held"])
Statistics = Literal["differentiated", "held"]


def group(rho: list[float], advantages: list[float], group_N: list[int] | None = None) -> Tokens:
    """Completions of a token each, with these log-ratios to the old policy."""
    return tokens(
        [[-5.0]] * len(rho),
        old_logp=[[-5.0 - x] for x in rho],
        advantage=[[a] for a in advantages],
        group_N=group_N or [0] * len(rho),
    )


def test_a_group_by_hand() -> None:
    """(3, 0, 0) is (2, -1, -1) around its mean, with variance 6 / 2; advantages 1, 0, -1."""
    result = RegGRPO()(group([3.0, 0.0, 0.0], [1.0, 0.0, -1.0]))
    s = 1 / math.sqrt(3)
    errors = [(1 - 2 * s) ** 2, s**2, (1 - s) ** 2]
    assert result.loss_T.tolist() == pytest.approx([sum(errors) / 3] * 3)
    assert result.metrics["squared_error"].tolist() == pytest.approx(errors)
    assert result.metrics["log_ratio_std"].tolist() == pytest.approx([math.sqrt(3)])
    assert result.metrics["floored"].tolist() == [0.0]
    correlation = (2 + 1) / math.sqrt(6 * 2)
    assert sum(errors) / 3 == pytest.approx((2 - 2 * correlation) * 2 / 3)


def test_the_log_ratio_is_that_of_the_whole_completion() -> None:
    these = tokens(
        [[-1.0, -2.0], [-3.0]],
        old_logp=[[-1.5, -1.5], [-1.0]],
        advantage=[[1.0, 1.0], [-1.0]],
        group_N=[3, 3],
    )
    result = RegGRPO(floor=2.0)(these)
    assert result.metrics["log_ratio_std"].tolist() == pytest.approx([math.sqrt(2)]), "0 and -2"
    assert result.loss_T.tolist() == pytest.approx([0.25] * 3), "1 and -1 in units of 2: half of what is aimed at"


def test_no_loss_where_log_ratios_are_the_advantages_at_any_scale() -> None:
    advantages = [1.2, -0.3, -0.9]
    these_have = math.sqrt(sum(a**2 for a in advantages) / 2)
    advantages = [a / these_have for a in advantages]
    for scale in (0.2, 1.0, 40.0):
        these = group([7.0 + scale * a for a in advantages], advantages)
        result = RegGRPO()(these)
        assert result.loss_T.tolist() == pytest.approx([0.0] * 3, abs=1e-12)
        assert gradients(result.loss_T.sum(), these)["logp_T"].tolist() == pytest.approx([0.0] * 3, abs=1e-9)


def test_below_the_floor_it_requires_a_distance() -> None:
    """Log-ratios of 0.05 around their mean where 0.1 are asked for: half of the advantage is explained."""
    result = RegGRPO(floor=0.1)(group([0.05, -0.05], [1.0, -1.0]))
    assert result.loss_T.tolist() == pytest.approx([0.25] * 2)
    assert result.metrics["floored"].tolist() == [1.0]


@BOTH
@pytest.mark.parametrize("floor", [0.1, 0.5])
def test_the_first_gradient_of_a_batch(statistics: Statistics, floor: float) -> None:
    """-(2 / n) (A - mean A) / floor; with statistics held fixed, -(2 / n) A / floor. Here the mean of A is not 0."""
    advantages = [2.0, 0.0, 0.0, 0.0]
    these = group([0.0] * 4, advantages)
    found = gradients(RegGRPO(floor=floor, statistics=statistics)(these).loss_T[0], these)["logp_T"]
    mean = 0.5 if statistics == "differentiated" else 0.0
    assert found.tolist() == pytest.approx([-(2 / 4) * (a - mean) / floor for a in advantages])


def test_the_size_of_log_ratios_has_no_gradient() -> None:
    """The loss is a correlation: along rho nothing changes. Held statistics have a gradient there."""
    these = random_tokens(5, lengths=(2, 1, 3, 2), gap=1.0, advantage_by="sequence")
    these = replace(these, group_N=torch.zeros(4, dtype=torch.int64))
    rho_N = these.sequence_sum(these.logp_T - these.old_logp_T).detach()
    last_N = these.length_N.cumsum(0) - 1

    def along(objective: RegGRPO) -> float:
        return float(gradients(objective(these).loss_T[0], these)["logp_T"][last_N] @ rho_N)

    assert along(RegGRPO()) == pytest.approx(0.0, abs=1e-12)
    assert abs(along(RegGRPO(statistics="held"))) > 1e-3


def test_finite_differences() -> None:
    objective, these = RegGRPO(), random_tokens(3, lengths=(3, 1, 4, 2, 5, 2, 1, 1), gap=0.7)
    found = gradients(objective(these).loss_T.sum(), these)["logp_T"]
    numerical = numerical_gradient(lambda x_T: objective(replace(these, logp_T=x_T)).loss_T.sum(), these.logp_T)
    torch.testing.assert_close(found, numerical, atol=1e-7, rtol=1e-5)


def test_finite_differences_with_statistics_held() -> None:
    """Against the same loss with mean and std as numbers, worked out here."""
    these = group([0.4, -0.3, 0.8], [1.0, 0.0, -1.0])
    rho_N, target_N = torch.tensor([0.4, -0.3, 0.8], dtype=torch.float64), these.advantage_T
    mean, deviation = rho_N.mean(), rho_N.std()

    def loss(x_N: torch.Tensor) -> torch.Tensor:
        return ((target_N - (x_N - mean) / deviation) ** 2).mean()

    found = gradients(RegGRPO(statistics="held")(these).loss_T[0], these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(loss, rho_N), atol=1e-8, rtol=1e-6)


@BOTH
def test_equal_rewards_have_no_loss(statistics: Statistics) -> None:
    """Their log-ratios differ, which would be pulled at for ever; the group beside them is learned from."""
    these = group([0.5, -0.5, 1.0, 0.0], [0.3, 0.3, 1.0, -1.0], [0, 0, 2, 2])
    result = RegGRPO(statistics=statistics)(these)
    assert result.loss_T[:2].tolist() == [0.0, 0.0]
    assert result.loss_T[2:].tolist() == pytest.approx([(1 - 1 / math.sqrt(2)) ** 2] * 2)
    assert not gradients(result.loss_T.sum(), these)["logp_T"][:2].any()
    assert [len(values) for values in result.metrics.values()] == [2, 1, 1]


def test_one_rollout_has_nothing_to_be_compared_with() -> None:
    these = group([0.5], [1.0])
    result = RegGRPO()(these)
    assert result.loss_T.tolist() == [0.0]
    assert gradients(result.loss_T.sum(), these)["logp_T"].tolist() == [0.0]


def test_beyond_the_clip_range_there_is_a_gradient() -> None:
    """A ratio of e with a good advantage: PPO stops there, the regression goes on."""
    these = group([1.0, -1.0, 0.5, -2.0], [1.0, -1.0, 0.6, -0.6])
    assert not gradients(PPOClip()(these).loss_T.sum(), these)["logp_T"].any()
    assert gradients(RegGRPO()(these).loss_T.sum(), these)["logp_T"].abs().min() > 1e-2
