"""Runs that were cut off where tasks are measured anew, hinted or born, and continued: equal to undisturbed ones."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.evaluation.settings import Evaluation
from posttrain.methods.curriculum.eva import eva
from posttrain.methods.curriculum.ghpo import ghpo
from posttrain.methods.curriculum.vas import vas
from posttrain.policies.folder import new_folder
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models
from tests.conformance.test_methods import run
from tests.stages.resuming import cut_off_and_resumed

QUICK = (
    *("threads=1", "checkpoints={every_steps: 1, keep: 2}", "prompts=4", "rollout.n=4"),
    *("rollout.sampling.max_tokens=6", "tasks={kind: arithmetic, size: 8}"),
)
LETTERS = "{kind: regex, pattern: '[a-m]'}"
Row = dict[str, Any]


def measured_anew(metrics: list[Row], rows: list[Row]) -> bool:
    return [entry.get("probe_tokens", 0) > 0 for entry in metrics] == [True, False, True, False]


def hinted(metrics: list[Row], rows: list[Row]) -> bool:
    return all(row["hint_share"] == 0.75 for row in rows)


def born(metrics: list[Row], rows: list[Row]) -> bool:
    return any("lineage" in row for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "changes", "at", "happened"),
    [
        pytest.param(vas, [f"rl.reward={LETTERS}", "curriculum.every=2"], 3, measured_anew, id="refresh"),
        pytest.param(ghpo, [], 3, hinted, id="ladder"),
        pytest.param(eva, [f"rl.reward={LETTERS}"], 4, born, id="born tasks"),
    ],
)
def test_resumes_to_the_bit(
    method: Callable[[], Recipe],
    changes: list[str],
    at: int,
    happened: Callable[[list[Row], list[Row]], bool],
    tmp_path: Path,
) -> None:
    recipe = method()
    recipe = replace(recipe, stages={"rl": rl_of(recipe)}, evaluation=Evaluation(by="none"))
    recipe = override(recipe, [*QUICK, "steps=4", f"models.policy.source={tiny(tmp_path)}", *changes])
    models, whole = run(recipe, tmp_path / "whole")
    assert happened(whole.metrics(), facts(whole, at))
    assert_resumed(recipe, tmp_path, at, models, whole)


@pytest.mark.slow
def test_rounds_with_born_tasks_resume_to_the_bit(tmp_path: Path) -> None:
    recipe = eva()
    stage = rl_of(recipe)
    stages = {"round_1": stage, "round_2": replace(stage, learner=replace(stage.learner, carried=True))}
    recipe = override(
        replace(recipe, stages=stages, evaluation=Evaluation(by="none")),
        [
            *(change for change in QUICK if not change.startswith(("prompts", "rollout"))),
            f"models.policy.source={tiny(tmp_path)}",
            *(f"{name}.{change}" for name in stages for change in ("steps=3", *QUICK[2:5])),
            *(f"{name}.reward={LETTERS}" for name in stages),
        ],
    )
    models, whole = run(recipe, tmp_path / "whole")
    for first, last in ((1, 3), (4, 6)):  # tasks are born once all of the pool were taken, in each round anew
        assert not born([], facts(whole, first)) and born([], facts(whole, last))
    for at in (3, 4, 6):
        assert_resumed(recipe, tmp_path, at, models, whole)


def tiny(folder: Path) -> Path:
    return new_folder(folder / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=512)


def facts(store: RunStore, step: int) -> list[Row]:
    return [json.loads(row["info"] or "{}") for row in store.rollouts(step)]


def assert_resumed(recipe: Recipe, folder: Path, at: int, models: Models, whole: RunStore) -> None:
    resumed, again = cut_off_and_resumed(recipe, folder / f"cut_{at}", at=at)
    assert again.metrics() == whole.metrics()
    assert all(again.rollouts(step) == whole.rollouts(step) for step in whole.rollout_steps())
    weights = resumed["policy"].state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in models["policy"].state_dict().items())
