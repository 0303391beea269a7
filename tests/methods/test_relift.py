"""ReLIFT: failed tasks wait for an update of their own, with its own moments."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from posttrain.methods.sft_rl.relift import ROWS, relift
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models
from tests.stages.conftest import with_reward
from tests.stages.resuming import cut_off_and_resumed

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

NEVER = "def score(completion):\n    return 0.0\n"
FORMAT = "def score(completion):\n    return -1.0\n"
SOMETIMES = "def score(completion):\n    return float(sum(map(ord, completion)) % 7 == 0)\n"
SHORT = ("tasks.terms=[2, 2]", "penalties={}", "lr=1e-2")


@pytest.mark.slow
def test_an_update_of_imitation_as_soon_as_enough_tasks_failed(small: Small, train: Train, tmp_path: Path) -> None:
    """Three fail in each step, and four make an update: none after the first step, one each after the others."""
    recipe = with_reward(small(relift(arithmetic()), *SHORT, "experts.batch=4"), tmp_path, NEVER)
    models, store = train(recipe)
    imitated = [entry.get("experts/trained_tokens", 0) > 0 for entry in store.metrics()]
    assert imitated == [False, True, True]
    assert models["policy"].version == 3 + 2, "an update with rollouts in every step, and two with demonstrations"
    keys = [
        [row["task_key"] for row in store.rollouts(step) if row["sampled_logp"] is None and not row["dropped_reason"]]
        for step in (1, 2, 3)
    ]
    sampled = [
        list(dict.fromkeys(row["task_key"] for row in store.rollouts(step) if row["sampled_logp"]))
        for step in (1, 2, 3)
    ]
    assert keys == [[], [*sampled[1], sampled[0][0]], [*sampled[2], sampled[0][1]]], "the newest first"
    for step, entry in list(enumerate(store.metrics(), start=1))[1:]:
        rows = [row for row in store.rollouts(step) if row["sampled_logp"] is None]
        logps = [x for row in rows for x in row["trained_logp"] if x is not None]
        assert entry["experts/loss"] == pytest.approx(-np.mean(logps), rel=1e-5)


def test_a_penalty_for_the_format_is_no_failure(small: Small, train: Train, tmp_path: Path) -> None:
    models, store = train(with_reward(small(relift(arithmetic()), *SHORT, "experts.batch=1"), tmp_path, FORMAT))
    assert models["policy"].version == 3
    assert all("experts/loss" not in entry for entry in store.metrics())


@pytest.mark.slow
def test_both_optimizers_resume(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(relift(arithmetic()), *SHORT, "experts.batch=4", "steps=4", "checkpoints.every_steps=2")
    recipe = with_reward(recipe, tmp_path, SOMETIMES)
    models, whole = train(recipe)
    again, resumed = cut_off_and_resumed(recipe, tmp_path / "cut", at=3)
    assert resumed.metrics() == whole.metrics()
    assert any("experts/loss" in entry for entry in whole.metrics()[2:])
    for ours, theirs in zip(models["policy"].parameters(), again["policy"].parameters(), strict=True):
        assert (ours == theirs).all()


def test_without_an_optimizer_of_its_own_it_is_one_update(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = small(relift(arithmetic()), *SHORT, "experts.batch=3")
    recipe = with_reward(override(recipe, ["expert_learner=null"]), tmp_path, NEVER)
    models, store = train(recipe)
    assert models["policy"].version == 3
    assert all(entry["demonstrated/loss"] > 0 for entry in store.metrics())
    assert ROWS == (72,)
