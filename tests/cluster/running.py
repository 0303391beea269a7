"""Small recipes on a Ray that is there, and what a run may not owe to its processes."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posttrain.components.rewards.function import Function
from posttrain.engines.native import Native
from posttrain.recipes.files import find_recipe
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from tests.conformance.test_methods import made_small

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


def small(name: str, tiny: Path) -> Recipe:
    """A recipe with the smallest models, cut into many micro-batches."""
    recipe = made_small(find_recipe(name), tiny)
    stages = {}
    for key, stage in recipe.stages.items():
        learner: Any = getattr(stage, "learner", None)
        if learner is not None and learner.micro_batch_tokens is None:
            stage = replace(stage, learner=replace(learner, micro_batch_tokens=64))  # type: ignore[type-var]
        stages[key] = stage
    return replace(recipe, stages=stages, engine=Native(slots=16))


SCORE = """
def score(completion, task):
    return (sum(map(ord, completion)) + len(task.prompt)) % 7 / 6
"""


def scored(recipe: Recipe, folder: Path, **settings: Any) -> Recipe:
    """A recipe with a reward that distinguishes the noise of a tiny model, so that it learns something."""
    (folder / "mine.py").write_text(SCORE)
    stage: Any = next(iter(recipe.stages.values()))
    stage = replace(stage, reward=Function(path=f"{folder}/mine.py:score"), **settings)
    return replace(recipe, stages={"rl": stage})


def outcome(run: Path) -> dict[str, bytes]:
    """What a run may not owe to its processes: metrics, rollouts, held-out answers, the model."""
    files = [
        run / "metrics.jsonl",
        *sorted((run / "rollouts").glob("*")),
        *sorted((run / "model").glob("*.safetensors")),
    ]
    return {str(file.relative_to(run)): file.read_bytes() for file in files if file.is_file()}


def on(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs take the processes that are there."""

    @contextmanager
    def processes(context: RunContext) -> Iterator[None]:
        session.engine, context.session, context._servers = context.recipe.engine, session, {}
        yield
        session.keep([])

    monkeypatch.setattr(RunContext, "processes", processes)


def run(recipe: Recipe, root: Path) -> dict[str, bytes]:
    folder, _ = start(recipe, root, LiveView(lines=True))
    return outcome(folder)
