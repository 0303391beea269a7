"""ReFT: imitation hands its weights to policy, reference and critic; partial reward; KL taken from the reward."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.advantages.gae import GAE
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl import KL
from posttrain.components.rewards.format import Format
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.sft_rl.reft import ROWS, reft
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.quickstart import quickstart
from posttrain.signals import OLD_VALUE, logp_of
from posttrain.stages import Models
from posttrain.stages.rl import RL
from posttrain.stages.rl.credit import batch_of
from posttrain.types import Group
from tests.builders import task, trajectory
from tests.components.rewards.judging import judge

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


@pytest.mark.parametrize(
    ("completion", "value", "status"),
    [
        (" 6*7=42\n#### 42", 1.0, "ok"),
        ("#### 42.005", 1.0, "ok"),
        ("#### 41", 0.1, "wrong"),
        ("#### many", 0.0, "wrong"),
        ("", 0.0, "wrong"),
    ],
)
def test_partial_reward(completion: str, value: float, status: str) -> None:
    score = judge(rl_of(reft()).reward, completion)
    assert (score.value, score.status) == (value, status)


def test_token_rewards_and_advantages_by_hand() -> None:
    """Two tokens, a wrong number: KL at both, 0.1 at the last; then GAE with gamma 1 and lambda 0.95."""
    rollout = trajectory(logp=[-1.0, -2.0], reward=0.1)
    signals = {
        logp_of("reference"): (np.array([-1.5, -1.0], np.float32),),
        OLD_VALUE: (np.array([0.2, 0.4], np.float32),),
    }
    stage = rl_of(reft())
    batch = batch_of([Group(trajectories=(rollout,))], signals, stage.penalties, 0.0)
    rewards = [-0.01 * 0.5, -0.01 * -1.0 + 0.1]
    assert batch.token_rewards[0].tolist() == pytest.approx(rewards)
    kl_part = batch.token_rewards[0].sum() - 0.1
    gap = rollout.behavior_logp - signals[logp_of("reference")][0]
    assert kl_part == pytest.approx(-0.01 * gap.sum(), abs=1e-7)

    last = rewards[1] - 0.4
    first = rewards[0] + 0.4 - 0.2 + 0.95 * last
    _, credit = GAE(whiten=False)({}, batch)
    assert credit.advantages[0].tolist() == pytest.approx([first, last], abs=1e-6)
    assert credit.value_targets[0].tolist() == pytest.approx([first + 0.2, last + 0.4], abs=1e-6)
    white = [np.sqrt(0.5) * np.sign(first - last), np.sqrt(0.5) * np.sign(last - first)]
    assert stage.advantage({}, batch)[1].advantages[0].tolist() == pytest.approx(white, abs=1e-4)


def test_settings_of_the_paper() -> None:
    stage = rl_of(reft())
    assert stage.penalties == {"kl": KL(coefficient=0.01, form="k1", where="reward")}
    assert stage.advantage == GAE(gamma=1.0, lam=0.95, whiten=True)
    assert (stage.learner.epochs, stage.learner.minibatches) == (2, 1)
    assert ROWS == (102,)


def test_rl_starts_from_the_weights_of_sft(small: Small, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    """Policy, reference and critic's body are one model when reinforcement begins, and not the one SFT began with."""
    begun: dict[str, Mapping[str, Any]] = {}

    def seen(models: Models) -> dict[str, Any]:
        return {role: {n: p.detach().clone() for n, p in m.body.named_parameters()} for role, m in models.items()}

    first_models, run = RunContext.first_models, RL.run

    def loaded(self: RunContext) -> Any:
        models = first_models(self)
        begun["start"] = seen(models)
        return models

    def watched(self: RL, models: Models, stage_run: Any) -> Models:
        begun["rl"] = seen(models)
        return run(self, models, stage_run)

    monkeypatch.setattr(RunContext, "first_models", loaded)
    monkeypatch.setattr(RL, "run", watched)
    models, store = train(small(reft(), "sft.max_steps=2"))
    start, rl = begun["start"], begun["rl"]
    assert set(rl) == {"policy", "reference", "critic"}
    for name, weights in rl["policy"].items():
        assert torch.equal(rl["reference"][name], weights)
        assert torch.equal(rl["critic"][name], weights)
    assert any(not torch.equal(start["policy"][name], weights) for name, weights in rl["policy"].items())
    assert all(torch.equal(p, rl["reference"][n]) for n, p in models["reference"].body.named_parameters())
    steps = [entry for entry in store.metrics() if entry["stage"] == "rl"]
    assert steps[0]["kl/reference"] == pytest.approx(0.0, abs=1e-6)
    assert steps[-1]["kl/reference"] > 1e-9
    assert models["policy"].version == 2 + 2 * 3, "two steps of imitation, two passes over each of three batches"


def test_a_incorrect_number_is_not_a_solved_task() -> None:
    assert judge(rl_of(reft()).reward, "#### 7", task(answer="4")).status == "wrong"


def test_imitation_and_critic_that_are_there_are_kept() -> None:
    mine = override(ppo(quickstart()), ["critic_learner.optimizer.lr=5e-3", "advantage.lam=0.9"])
    stage = rl_of(reft(mine))
    assert sft_of(reft(mine)) == sft_of(mine)
    assert (stage.advantage, stage.critic_learner.optimizer) == (GAE(lam=0.9), AdamW(lr=5e-3))


def test_another_reward_is_kept_and_stays_the_verifier() -> None:
    mine = override(arithmetic(), ["reward=format"])
    assert rl_of(reft(mine)).reward == reft(mine).evaluation.verifier == Format()
