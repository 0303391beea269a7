"""Recipes on a tiny new model, small enough for a test, run for real."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.policies.folder import new_folder
from posttrain.recipes.overrides import override, to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.live import LiveView
from posttrain.runs.run import Run
from posttrain.runs.store import RunStore
from posttrain.stages import Models

SMALL = (
    "tasks.size=60",
    "evaluation.holdout=5",
    "steps=3",
    "prompts=3",
    "rollout.n=4",
    "rollout.sampling.max_tokens=8",
    "threads=1",
)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return new_folder(folder, layers=1, width=32, heads=2, kv_heads=1, context=64)


@pytest.fixture
def small(tiny_folder: Path) -> Callable[..., Recipe]:
    """A recipe with the tiny model, small sizes, and changes."""

    def make(recipe: Recipe | None = None, *changes: str) -> Recipe:
        recipe = recipe or grpo()
        sizes = SMALL if "rl" in recipe.stages else tuple(s for s in SMALL if s[:5] in ("tasks", "evalu", "threa"))
        return override(recipe, [f"model={tiny_folder}", *sizes, *changes])

    return make


@pytest.fixture
def train(tmp_path: Path) -> Callable[[Recipe], tuple[Models, RunStore]]:
    """Run a recipe to its end, without the report."""

    def run(recipe: Recipe) -> tuple[Models, RunStore]:
        context = RunContext(recipe, torch.device("cpu"))
        with RunStore.create(tmp_path / "runs", recipe.name, to_tree(recipe)) as store:
            models = Run(context, store, LiveView(lines=True)).execute(context.first_models())
        return models, RunStore.open(store.folder, reading=True)

    return run


def with_reward(recipe: Recipe, folder: Path, source: str) -> Recipe:
    """The recipe with a reward function of the given source code, named `score`."""
    path = folder / "reward_for_test.py"
    path.write_text(source)
    stage: Any = recipe.stages["rl"]
    changed = override(recipe, [f"reward={path}:score"])
    return replace(changed, name=recipe.name) if stage else changed
