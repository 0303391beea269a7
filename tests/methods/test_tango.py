"""Tango: a generator and a verifier one after another."""

from collections.abc import Callable

import pytest

from posttrain.methods.reward_models.tango import ROWS, tango
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from posttrain.types import Task

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_the_verifier_is_updated_in_every_third_step() -> None:
    assert ROWS == (108,)
    assert rl_of(tango()).by_role["verifier"].every == 3


def test_the_verifier_is_warmed_up_on_its_prompts() -> None:
    recipe = tango()
    [task, *_] = recipe.stages["verifier"].tasks.load()  # type: ignore[union-attr]
    problem, solution = str(task.prompt).removesuffix("\nCheck:").split("\nA:")
    asked = rl_of(recipe).rollout.prompt  # type: ignore[attr-defined]
    assert asked.format(problem=f"{problem}\nA:", solution=solution) == task.prompt
    assert isinstance(task, Task)


@pytest.mark.slow
def test_turns_rewards_and_record(small: Small, train: Train) -> None:
    changes = ["rl.steps=6", "verifier.max_steps=2", "verifier.tasks.size=40", "by_role.verifier.warmup_steps=1"]
    changes += ["rollout.sampling.max_tokens=24", "model=pebble", "by_role.verifier.every=2"]
    recipe = small(tango(), "rollout.n=4", *changes)
    _, store = train(recipe)
    steps = [entry for entry in store.metrics() if entry["stage"] == "rl"]
    assert ["loss" in entry for entry in steps] == [False, True, True, True, True, True]
    assert ["verifier/loss" in entry for entry in steps] == [True, False, True, False, True, False]
    assert all({"alpha", "verified"} <= entry.keys() for entry in steps[1:])
    for entry in steps:
        assert entry["verifier/reward"] == pytest.approx(
            entry["verifier/reward/verdict"] + 0.1 * entry["verifier/reward/form"]
        )
        assert entry["sampled_tokens"] > entry["verifier/sampled_tokens"] > 0
    rows = store.rollouts(store.rollout_steps()[-1])
    assert len(rows) == 3 * 4 * 2
    left_out = [row for row in rows if row["dropped_reason"] is not None]
    assert len(left_out) == 12 and all("Check:" in row["prompt"] for row in left_out)
