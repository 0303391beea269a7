"""Kimi K2: its loss, budgets, temperature, wins, and QK-clip, by hand."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.hooks import RoleState
from posttrain.components.hooks.qk_clip import QKClip
from posttrain.components.objectives.mirror_descent import MirrorDescent
from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.over_budget import OverBudget
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.wins import Wins
from posttrain.components.rollouts.budgeted import Budgeted
from posttrain.components.shapes.decoder import Decoder
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.kimi_k2 import kimi_k2, verified
from posttrain.models import Model
from posttrain.policies.attention_logits import largest_logits
from posttrain.policies.loading import load_policy
from posttrain.stages.reward_model import RewardModelTraining
from posttrain.stages.rl import RL
from tests.builders import ScriptedSampler, group, task, tokens


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


def test_budgets_are_by_domain_and_the_temperature_falls() -> None:
    rollout = Budgeted(n=20, budgets={"short": 2}, hottest=2.0, sampling=Sampling(max_tokens=9, temperature=1.0))
    assert [rollout.at(p).temperature for p in (0.0, 0.5, 1.0)] == [2.0, 1.5, 1.0]
    cosine = replace(rollout, shape="cosine")
    assert [round(cosine.at(p).temperature, 3) for p in (0.0, 0.25, 1.0)] == [2.0, 1.854, 1.0]
    for domain, most in (("short", 2), ("other", 9)):
        [own] = asyncio.run(rollout.collect(replace(task(), domain=domain), {"policy": ScriptedSampler()}))
        assert max(t.num_trained for t in own) <= most


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


def llama(tmp_path: Path, *, kv_heads: int, architecture: str = "llama") -> RoleState:
    shape = Decoder(
        architecture=architecture,
        layers=2,
        width=16,
        heads=4,
        kv_heads=kv_heads,
        mlp_width=16,
        context=64,  # type: ignore[arg-type]
    )
    policy = load_policy("policy", Model(source=str(shape.make(tmp_path / "m"))), {}, torch.device("cpu"))
    with torch.no_grad():
        attention = policy.body.model.layers[1].self_attn  # type: ignore[attr-defined]
        attention.q_proj.weight[4:8] *= 400.0
        attention.k_proj.weight[: 4 * kv_heads] *= 20.0
    return RoleState(role="policy", model=policy, groups=(group([0.0, 1.0], length=12),))


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_qk_clip_bounds_the_logits_of_a_head_and_leaves_the_others(tmp_path: Path, kv_heads: int) -> None:
    state = llama(tmp_path, kv_heads=kv_heads)
    texts = [t.token_ids for t in state.groups[0]]
    before = {name: p.clone() for name, p in state.model.named_parameters()}
    largest = [own for _, own in largest_logits(state.model, texts)]
    tau = float(largest[1].sort().values[-2]) * 1.5
    assert tau > 0 and float(largest[1][1]) > 2 * tau and float(largest[0].max()) < tau
    QKClip(tau=tau, every=2)(1, {"policy": state})
    assert all(torch.equal(p, before[name]) for name, p in state.model.named_parameters()), "not due"
    QKClip(tau=tau)(1, {"policy": state})
    after = [own for _, own in largest_logits(state.model, texts)]
    assert float(after[1][1]) == pytest.approx(tau, rel=1e-4)
    changed = {name for name, p in state.model.named_parameters() if not torch.equal(p, before[name])}
    keys = {"k_proj"} if kv_heads == 4 else set()
    assert {name.split(".")[-2] for name in changed} == {"q_proj"} | keys and all("layers.1." in n for n in changed)
    query = next(p for name, p in state.model.named_parameters() if name.endswith("layers.1.self_attn.q_proj.weight"))
    was = next(p for name, p in before.items() if name.endswith("layers.1.self_attn.q_proj.weight"))
    assert torch.equal(query[:4], was[:4]) and torch.equal(query[8:], was[8:]), "other heads keep their bits"


def test_qk_clip_is_refused_where_norms_bound_the_logits(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="norms of queries and keys"):
        QKClip()(1, {"policy": llama(tmp_path, kv_heads=2, architecture="qwen3")})
