"""Kimi K2: its loss, penalty and wins, by hand."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.objectives.mirror_descent import MirrorDescent
from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.over_budget import OverBudget
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.wins import Wins
from posttrain.methods.policy_gradient.kimi_k2 import kimi_k2, verified
from posttrain.stages.reward_model import RewardModelTraining
from posttrain.stages.rl import RL
from tests.builders import ScriptedSampler, group, tokens


def test_the_residual_is_least_where_tau_times_the_log_ratio_is_the_centred_reward() -> None:
    """tau .5, A 1 and -1: log-ratios 2 and -2. The loss is -A s + tau / 2 s^2, here -2 + 1 = -1 for both."""
    given = tokens([[1.0, 1.0], [-2.0]], old_logp=[[0.0, 0.0], [0.0]], advantage=[[1.0, 1.0], [-1.0]])
    logp_T = given.logp_T.detach().clone().requires_grad_()
    result = MirrorDescent(tau=0.5)(replace(given, logp_T=logp_T))
    result.loss_T.sum().backward()
    assert logp_T.grad is not None and logp_T.grad.abs().max() < 1e-6
    assert result.loss_T.sum().item() == pytest.approx(-2.0)


def test_one_that_was_cut_is_penalized_and_one_that_ends_at_the_budget_is_not() -> None:
    trajectories = group([0.0, 0.0]).trajectories
    cut = replace(trajectories[0], stop_reason="length")
    both = replace(group([0.0, 0.0]), trajectories=(cut, replace(trajectories[1], stop_reason="stop")))
    reward = OverBudget(of=Regex(pattern=""), penalty=0.75)
    found = asyncio.run(reward.score(both, RewardContext()))
    assert [s.value for s in found] == [0.25, 1.0]


def test_wins_are_the_share_of_others_that_are_rated_lower() -> None:
    class Critic(ScriptedSampler):
        rated = iter([1.0, 3.0, 1.0, float("nan")])

        async def score(self, token_ids: np.ndarray, *, vectors: object = None) -> float:
            return next(self.rated)

    context = RewardContext(samplers={"critic": Critic()})
    found = asyncio.run(Wins().score(group([0.0] * 4), context))
    assert [s.value for s in found[:3]] == [0.25, 1.0, 0.25] and found[3].status == "error"


def test_the_critic_learns_from_verified_tasks_before_each_part() -> None:
    recipe = kimi_k2()
    assert list(recipe.stages) == ["critic", "early_rl", "critic_again", "rl"]
    stage = recipe.stages["critic_again"]
    assert isinstance(stage, RewardModelTraining) and stage.tasks is not None
    assert {t.domain for t in stage.tasks.load()} == {"checked"}
    assert {t.domain for t in recipe.tasks.load()} == {"checked", "open"}
    assert verified(stage.tasks) is stage.tasks
    last = recipe.stages["rl"]
    assert isinstance(last, RL) and last.rollout.at(0.0).temperature == 1.25
