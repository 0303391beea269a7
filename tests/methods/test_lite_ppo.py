"""Lite PPO: one reward std for all groups of a step."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.policy_gradient.lite_ppo import ROWS, lite_ppo
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.builders import batch
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

VARIED = "def score(completion):\n    return float(sum(map(ord, completion)) % 3 == 0)\n"


def test_it_trains(small: Small, train: Train, tmp_path: Path) -> None:
    """Every rollout stays in the step, and its tokens have the advantage of the formula."""
    models, store = train(with_reward(small(lite_ppo(), "lr=1e-2"), tmp_path, VARIED))
    assert models["policy"].version == 3
    for step in (1, 2, 3):
        rows = store.rollouts(step)
        assert len(rows) == 12 and not any(row["dropped_reason"] for row in rows)
        rewards = np.array([row["reward"] for row in rows])
        for row in rows:
            mean = np.mean([other["reward"] for other in rows if other["task_key"] == row["task_key"]])
            expected = (row["reward"] - mean) / (rewards.std(ddof=1) + 1e-6)
            found = [x for x in row["advantage"] if x is not None]
            assert found
            assert found == pytest.approx([expected] * len(found), abs=1e-6)
    assert ROWS == (230,)


def advantages(of: GroupMean, rewards: list[list[float]]) -> list[float]:
    _, credit = of({}, batch(rewards, length=1))
    return [float(a[0]) for a in credit.advantages]


def test_with_one_group_it_is_grpo() -> None:
    lite, parent = (rl_of(recipe).advantage for recipe in (lite_ppo(), grpo()))
    assert isinstance(lite, GroupMean) and isinstance(parent, GroupMean)
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 8):
        one = [rng.normal(size=size).tolist()]
        assert advantages(lite, one) == advantages(parent, one) == advantages(replace(lite, scale="within"), one)
    two = [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]]
    assert advantages(lite, two) != advantages(parent, two)


def test_tokens_have_equal_weights_or_answers_do() -> None:
    """Of two answers of 2 and 6 tokens, a token of either is 1/8 of the loss, or 1/4 and 1/12 of it."""
    length_N, group_N = np.array([2, 6]), np.array([0, 0])
    assert rl_of(lite_ppo()).reducer.weights(length_N, group_N).tolist() == [0.125, 0.125]
    by_answer = rl_of(override(lite_ppo(), ["reducer=sequences"])).reducer
    assert by_answer.weights(length_N, group_N).tolist() == pytest.approx([1 / 4, 1 / 12])


def test_an_easy_task_that_was_missed_once_does_not_outweigh_the_others() -> None:
    """7 of 8 right: the miss is 0.875 below the mean, of a std of 0.354 in its group and 0.479 in the batch."""
    easy, hard = [1.0] * 7 + [0.0], [1.0, 0.0] * 4
    rewards = np.array(easy + hard)
    grpo_missed = advantages(GroupMean(), [easy, hard])[7]
    lite_missed = advantages(GroupMean(scale="batch"), [easy, hard])[7]
    assert grpo_missed == pytest.approx(-0.875 / np.sqrt(7 / 8 * 1 / 8 * 8 / 7), rel=1e-4)
    assert lite_missed == pytest.approx(-0.875 / np.sqrt(rewards.mean() * (1 - rewards.mean()) * 16 / 15), rel=1e-4)
    assert grpo_missed == pytest.approx(-2.475, abs=1e-3) and lite_missed == pytest.approx(-1.828, abs=1e-3)


def learned(advantage: GroupMean, seed: int, *, contexts: int = 40, samples: int = 8, updates: int = 100) -> float:
    """Chance of the right one of two arms in the contexts where there is one, after policy-gradient updates.

    A context is a vector of 16 numbers, and the policy is linear in it. In half of the contexts the right arm is the
    sign of a hidden direction; in the others any arm is rewarded in 97 of 100 cases, and there is nothing to learn.
    """
    rng = np.random.default_rng(seed)
    context_CD = rng.normal(size=(contexts, 16))
    right_C = context_CD @ rng.normal(size=16) > 0
    real_C = np.arange(contexts) < contexts // 2
    weight_D = np.zeros(16)
    base = batch([[0.0] * samples] * contexts, length=1)
    for _ in range(updates):
        chance_C = 1 / (1 + np.exp(-context_CD @ weight_D))
        arm_CS = rng.random((contexts, samples)) < chance_C[:, None]
        luck_CS = rng.random((contexts, samples)) < 0.97
        reward_CS = np.where(real_C[:, None], arm_CS == right_C[:, None], luck_CS).astype(np.float32)
        given = replace(base, token_rewards=tuple(reward_CS.reshape(-1, 1)))
        _, credit = advantage({}, given)
        advantage_CS = np.concatenate(credit.advantages).reshape(contexts, samples)
        weight_D += 0.5 * ((advantage_CS * (arm_CS - chance_C[:, None])).mean(1)[:, None] * context_CD).mean(0)
    chance_C = 1 / (1 + np.exp(-context_CD @ weight_D))
    return float(np.where(right_C, chance_C, 1 - chance_C)[real_C].mean())


@pytest.mark.slow
def test_noise_of_easy_tasks_is_not_amplified() -> None:
    gains = [learned(GroupMean(scale="batch"), seed) - learned(GroupMean(), seed) for seed in range(4)]
    assert min(gains) > 0 and np.mean(gains) > 0.01, gains
