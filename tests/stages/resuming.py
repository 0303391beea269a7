"""A run that ends in the middle of a step, and is continued by another process's objects."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.recipes.overrides import to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.live import LiveView
from posttrain.runs.run import Run
from posttrain.runs.store import RunStore
from posttrain.stages import Models


class PullThePlug(LiveView):
    """Ends everything after a step was recorded, and before a checkpoint could be made of it."""

    def __init__(self, at: int) -> None:
        super().__init__(lines=True)
        self._at = at

    def step(self, metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        super().step(metrics, timing)
        if metrics["step"] == self._at:
            raise KeyboardInterrupt


def cut_off_and_resumed(recipe: Recipe, root: Path, *, at: int) -> tuple[Models, RunStore]:
    """The final models and the record of a run that was cut off in step `at` and resumed."""
    context = RunContext(recipe, torch.device("cpu"))
    with RunStore.create(root, recipe.name, to_tree(recipe)) as store, pytest.raises(KeyboardInterrupt):
        Run(context, store, PullThePlug(at)).execute(context.first_models())
    context = RunContext(recipe, torch.device("cpu"))
    with RunStore.open(store.folder) as again:
        models = Run(context, again, LiveView(lines=True)).execute(context.first_models())
    return models, RunStore.open(store.folder, reading=True)
