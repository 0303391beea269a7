"""Runs that were cut off where tasks are measured anew, hinted or born, or weights learned, equal undisturbed ones."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.evaluation.settings import Evaluation
from posttrain.methods.curriculum.eva import eva
from posttrain.methods.curriculum.ghpo import ghpo
from posttrain.methods.curriculum.vas import vas
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.policies.folder import new_folder
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from tests.conformance.test_methods import run
from tests.stages.resuming import cut_off_and_resumed

QUICK = (
    *("threads=1", "checkpoints={every_steps: 1, keep: 2}", "steps=4", "prompts=4"),
    *("rollout.n=4", "rollout.sampling.max_tokens=6", "tasks={kind: arithmetic, size: 8}"),
)
LETTERS = "rl.reward={kind: regex, pattern: '[a-m]'}"
Row = dict[str, Any]


def measured_anew(metrics: list[Row], rows: list[Row]) -> bool:
    return [entry.get("probe_tokens", 0) > 0 for entry in metrics] == [True, False, True, False]


def hinted(metrics: list[Row], rows: list[Row]) -> bool:
    return all(row["hint_share"] == 0.75 for row in rows)


def born(metrics: list[Row], rows: list[Row]) -> bool:
    return any("lineage" in row for row in rows)


def mixed(metrics: list[Row], rows: list[Row]) -> bool:
    return len({entry["weight/few"] for entry in metrics}) == len(metrics)


MIXTURE = (
    "rl.reward={kind: sum, parts: {some: {kind: regex, pattern: '[a-m]'}, few: {kind: regex, pattern: '[a-c]'}}}",
    "advantage={kind: mixed, primary: some, weights: {few: 0.5}}",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "changes", "at", "happened"),
    [
        pytest.param(vas, [LETTERS, "curriculum.every=2"], 3, measured_anew, id="refresh"),
        pytest.param(ghpo, [], 3, hinted, id="ladder"),
        pytest.param(eva, [LETTERS], 4, born, id="born tasks"),
        pytest.param(grpo, MIXTURE, 3, mixed, id="learned weights"),
    ],
)
def test_resumes_to_the_bit(
    method: Callable[[], Recipe],
    changes: Sequence[str],
    at: int,
    happened: Callable[[list[Row], list[Row]], bool],
    tmp_path: Path,
) -> None:
    tiny = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=512)
    recipe = method()
    recipe = override(
        replace(recipe, stages={"rl": rl_of(recipe)}, evaluation=Evaluation(by="none")),
        [*QUICK, f"models.policy.source={tiny}", *changes],
    )
    models, whole = run(recipe, tmp_path / "whole")
    rows = [json.loads(row["info"] or "{}") for row in whole.rollouts(at)]
    assert happened(whole.metrics(), rows)
    resumed, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=at)
    assert again.metrics() == whole.metrics()
    assert all(again.rollouts(step) == whole.rollouts(step) for step in whole.rollout_steps())
    weights = resumed["policy"].state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in models["policy"].state_dict().items())
