"""A run that ends in the middle of a step, and is continued by another process's objects."""

import shutil
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


class KeepACopy(LiveView):
    """Copies a run's folder after a step was recorded, and before a checkpoint is made of it; the last copy stays."""

    def __init__(self, folder: Path, copy: Path) -> None:
        super().__init__(lines=True)
        self._folder, self._copy = folder, copy

    def step(self, metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        super().step(metrics, timing)
        shutil.rmtree(self._copy, ignore_errors=True)
        shutil.copytree(self._folder, self._copy)


def run_and_resumed_copy(recipe: Recipe, root: Path) -> tuple[tuple[Models, RunStore], tuple[Models, RunStore]]:
    """The final models and the record of a run, and of its copy from the middle of its last step, resumed.

    It does the steps before that once, so that a draw of theirs without a key is not found.
    """
    context, copy = RunContext(recipe, torch.device("cpu")), root / "copy"
    first = context.first_models()
    context.check(first)
    with RunStore.create(root / "whole", recipe.name, to_tree(recipe)) as store:
        models = Run(context, store, KeepACopy(store.folder, copy)).execute(first)
    again = RunContext(recipe, torch.device("cpu"))
    with RunStore.open(copy) as resumed:
        found = Run(again, resumed, LiveView(lines=True)).execute(again.first_models())
    return (models, RunStore.open(store.folder, reading=True)), (found, RunStore.open(copy, reading=True))
