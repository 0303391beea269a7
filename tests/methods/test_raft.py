"""RAFT on a tiny new model."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.methods.sampling.raft import raft
from posttrain.recipes.catalogue import entries
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

PLAIN = "def score(completion):\n    return sum(c.isascii() and c.isprintable() for c in completion) / 8\n"
"""The share of readable characters among the eight that are requested."""


def test_the_best_rollout_of_each_task_is_trained_on(small: Small, train: Train, tmp_path: Path) -> None:
    models, store = train(with_reward(small(raft(), "filters.ranked.keep=0.25"), tmp_path, PLAIN))
    assert models["policy"].version == 3 * 4
    for step in (1, 2, 3):
        by_task: dict[str, list[tuple[float, bool]]] = {}
        for row in store.rollouts(step):
            by_task.setdefault(row["task_key"], []).append((row["reward"], row["dropped_reason"] is None))
        assert len(by_task) == 3
        for rollouts in by_task.values():
            assert len(rollouts) == 4
            assert [reward for reward, kept in rollouts if kept] == [max(reward for reward, _ in rollouts)]


def test_the_loss_is_the_likelihood_of_what_was_kept(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = with_reward(small(raft(), "learner.epochs=1", "steps=1"), tmp_path, PLAIN)
    _, store = train(recipe)
    logps = [
        x for row in store.rollouts(1) if row["dropped_reason"] is None for x in row["trained_logp"] if x is not None
    ]
    assert store.metrics()[0]["loss"] == pytest.approx(-np.mean(logps), abs=1e-5)


@pytest.mark.slow
def test_the_reward_rises_with_many_rollouts_and_not_with_one(small: Small, train: Train, tmp_path: Path) -> None:
    """The best of one rollout is itself: training on one's own samples changes nothing on average."""
    changes = ("steps=12", "lr=1e-2", "rollout.sampling.max_tokens=8")
    gains = []
    for n, prompts in ((8, 12), (1, 12)):
        recipe = small(raft(), *changes, f"rollout.n={n}", f"prompts={prompts}")
        rewards = [entry["reward"] for entry in train(with_reward(recipe, tmp_path, PLAIN))[1].metrics()]
        gains.append(np.mean(rewards[-4:]) - np.mean(rewards[:1]))
    assert gains[0] > 0.3
    assert gains[1] < gains[0] / 2


def test_it_is_listed_with_its_row() -> None:
    (found,) = [entry for entry in entries("recipe") if entry.name == "raft"]
    assert (found.rows, found.source) == ((7,), "arXiv:2304.06767")
