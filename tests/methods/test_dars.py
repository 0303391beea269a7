"""DARS: harder tasks get more rollouts, and advantages against the mean of both stages."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.components.rollouts.two_stage import TwoStage
from posttrain.methods.policy_gradient.dr_grpo import dr_grpo
from posttrain.methods.sampling.dars import ROWS, dars
from posttrain.recipes.changes import rl_of
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


def test_it_is_dr_grpo_with_another_sampling() -> None:
    assert ROWS == (239,)
    assert {d.path for d in differences(dr_grpo(), dars())} == {"rollout", "penalties.entropy"}


@pytest.mark.slow
def test_it_trains(small: Small, train: Train, tmp_path: Path) -> None:
    """Each task has as many rollouts as its first four require; the baseline is the mean of all."""
    recipe = override(dars(small(dr_grpo())), ["rollout.n=4", "rollout.n_max=12", "prompts=6"])
    _, store = train(with_reward(recipe, tmp_path, SELDOM))
    rollout = rl_of(recipe).rollout
    assert isinstance(rollout, TwoStage)
    sizes = set()
    for entry in store.metrics():
        tasks = defaultdict(list)
        rows = store.rollouts(entry["step"])
        for row in sorted(rows, key=lambda row: row["sample"]):
            tasks[row["task_key"]].append(row)
        for rollouts in tasks.values():
            values = [row["reward"] for row in rollouts]
            sizes.add(len(values))
            assert len(values) == 4 + rollout.more(sum(values[:4]) / 4)
            mixed = 0 < sum(values) < len(values)
            for row in rollouts:
                assert (row["dropped_reason"] is None) == mixed
                credit = [a for a in row["advantage"] or [] if a is not None]
                if mixed:
                    baseline = sum(values) / len(values)
                    assert credit == pytest.approx([row["reward"] - baseline] * len(credit), abs=1e-6)
        assert entry["sampled_tokens"] == sum(value is not None for row in rows for value in row["sampled_logp"] or [])
    assert len(sizes) > 1


def test_a_task_that_stays_unsolved_costs_the_cap_and_is_left_out(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = override(dars(small(dr_grpo())), ["rollout.n=4", "rollout.n_max=5", "steps=1"])
    models, store = train(with_reward(recipe, tmp_path, NEVER))
    rows = store.rollouts(1)
    assert len(rows) == 3 * 5 and all(row["dropped_reason"] for row in rows)
    assert models["policy"].version == 0, "nothing to learn from"


def test_breadth_is_one_update_of_the_whole_step_an_epoch(small: Small, train: Train, tmp_path: Path) -> None:
    recipe = override(dars(small(dr_grpo())), ["rollout.n=4", "rollout.n_max=12", "prompts=6", "steps=1"])
    models, _ = train(override(with_reward(recipe, tmp_path, SELDOM), ["learner.epochs=2"]))
    assert models["policy"].version == 2
