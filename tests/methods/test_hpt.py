"""HPT: demonstrations and rollouts are trained on, task by task."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.methods.sft_rl.hpt import ROWS, hpt
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

NEVER = "def score(completion):\n    return 0.0\n"
ALWAYS = "def score(completion):\n    return 1.0\n"
SOMETIMES = "def score(completion):\n    return float(sum(map(ord, completion)) % 7 == 0)\n"
SHORT = ("tasks.terms=[2, 2]", "penalties={}")


def test_without_a_correct_rollout_it_is_imitation(small: Small, train: Train, tmp_path: Path) -> None:
    models, store = train(with_reward(small(hpt(), *SHORT, "lr=1e-2"), tmp_path, NEVER))
    assert models["policy"].version == 3
    for step, entry in enumerate(store.metrics(), start=1):
        assert (entry["demonstrated"], entry["solved"]) == (1.0, 0.0)
        learned = [row for row in store.rollouts(step) if row["dropped_reason"] is None]
        dropped = [row for row in store.rollouts(step) if row["dropped_reason"] is not None]
        assert len(learned) == 3 and len(dropped) == 12
        assert all("####" in row["completion"] for row in learned)
        logps = [x for row in learned for x in row["trained_logp"] if x is not None]
        assert entry["loss"] == pytest.approx(-np.mean(logps), rel=1e-5), "the loss of imitation, over all tokens"
        assert all(row["sampled_logp"] is None for row in learned), "nobody sampled them"
    losses = [entry["loss"] for entry in store.metrics()]
    assert losses[-1] < losses[0]


def test_where_all_are_correct_demonstrations_are_left_out(small: Small, train: Train, tmp_path: Path) -> None:
    _, store = train(with_reward(small(hpt(), *SHORT), tmp_path, ALWAYS))
    for entry in store.metrics():
        assert entry["demonstrated"] == 0.0
        assert entry["loss"] == 0.0, "all rollouts are equally good"


def test_the_gate_is_per_task_and_its_rate_is_logged(small: Small, train: Train, tmp_path: Path) -> None:
    _, store = train(with_reward(small(hpt(), *SHORT, "prompts=8"), tmp_path, SOMETIMES))
    rates = []
    for step, entry in enumerate(store.metrics(), start=1):
        learned = [row for row in store.rollouts(step) if row["dropped_reason"] is None]
        imitated = {row["task_key"] for row in learned if row["sampled_logp"] is None}
        solved = {row["task_key"] for row in store.rollouts(step) if row["reward"] == 1 and row["sampled_logp"]}
        assert imitated.isdisjoint(solved)
        assert len(imitated) + len(solved) == len({row["task_key"] for row in learned}) == 8
        assert entry["demonstrated"] == pytest.approx(len(imitated) / 8)
        rates.append(entry["demonstrated"])
    assert 0 < np.mean(rates) < 1


def test_without_demonstrations_it_is_reinforcement(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(hpt(), *SHORT, "tasks.demonstrate=false")
    _, store = train(with_reward(recipe, tmp_path, SOMETIMES))
    assert all("demonstrated" not in entry for entry in store.metrics())
    assert all(row["dropped_reason"] is None for row in store.rollouts(1))
    assert ROWS == (138,)
