from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sampling.reinforce_ada import ROWS, reinforce_ada
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

SELDOM = "def score(completion):\n    return float(sum(map(ord, completion)) % 5 == 0)\n"
NEVER = "def score(completion):\n    return 0.0\n"


def test_it_is_grpo_with_another_sampling_and_baseline() -> None:
    assert ROWS == (110,)
    changed = {d.path for d in differences(grpo(), reinforce_ada())}
    assert changed == {
        "rollout",
        "advantage",
        "objective.clip_high",
        "objective.dual_clip",
        "filters.zero_variance",
        "filters.balanced",
    }


def of_step(store: RunStore, step: int) -> dict[str, list[dict[str, Any]]]:
    """A step's rollouts by task, in the order in which they were sampled."""
    tasks = defaultdict(list)
    for row in sorted(store.rollouts(step), key=lambda row: row["sample"]):
        tasks[row["task_key"]].append(row)
    return tasks


def is_enough(values: list[float]) -> bool:
    return values.count(1.0) >= 2 and values.count(0.0) >= 2


@pytest.mark.slow
def test_it_samples_until_both_are_found_and_learns_from_a_balanced_few(
    small: Small, train: Train, tmp_path: Path
) -> None:
    recipe = override(reinforce_ada(small()), ["rollout.per_round=4", "rollout.max_rounds=8", "prompts=6"])
    _, store = train(with_reward(recipe, tmp_path, SELDOM))
    lengths = set()
    for step in (1, 2, 3):
        for rollouts in of_step(store, step).values():
            values = [row["reward"] for row in rollouts]
            lengths.add(len(values))
            assert len(values) % 4 == 0
            assert is_enough(values) or len(values) == 32
            assert not is_enough(values[:-4]), "sampling went on after it had enough"
            kept = [row for row in rollouts if row["dropped_reason"] is None]
            assert sum(row["reward"] for row in kept) == 2 and len(kept) == 4
            baseline = sum(values) / len(values)
            for row in kept:
                credit = [a for a in row["advantage"] if a is not None]
                assert credit == pytest.approx([row["reward"] - baseline] * len(credit), abs=1e-6)
    assert len(lengths) > 1, "tasks took different numbers of rounds"


@pytest.mark.slow
def test_tasks_that_always_fail_are_kept_without_credit(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = override(reinforce_ada(small()), ["rollout.per_round=2", "rollout.max_rounds=3", "steps=1"])
    models, store = train(with_reward(recipe, tmp_path, NEVER))
    assert models["policy"].version == 1
    for rollouts in of_step(store, 1).values():
        assert len(rollouts) == 6
        kept = [row for row in rollouts if row["dropped_reason"] is None]
        assert [row["sample"] for row in kept] == [0, 1, 2, 3]
        assert all(a == 0.0 for row in kept for a in row["advantage"] if a is not None)
    [entry] = store.metrics()
    assert entry["trained_tokens"] > 0
    assert entry["sampled_tokens"] == sum(len(row["sampled_logp"] or []) for row in store.rollouts(1)) - sum(
        value is None for row in store.rollouts(1) for value in row["sampled_logp"]
    )
