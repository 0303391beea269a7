"""The recipe as it is: programs are imitated, then run; a run records which sandbox it had."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from posttrain.components.rewards.io_tests import IOTests
from posttrain.components.tasks.programs import Programs
from posttrain.methods.rewards.agnostics import agnostics
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from tests.components.rewards.programs import tier_for


def test_it_has_the_values_of_the_paper() -> None:
    recipe = agnostics()
    reward = rl_of(recipe).reward
    assert isinstance(reward, IOTests) and (reward.right, reward.wrong_output, reward.failed) == (1.0, 0.2, 0.0)
    assert isinstance(recipe.tasks, Programs) and set(recipe.tasks.languages) == {"bash"}


@pytest.mark.slow
def test_a_run_records_its_sandbox(tmp_path: Path) -> None:
    weakest = tier_for("bash")
    recipe: Recipe = agnostics()
    stage = rl_of(recipe)
    reward = replace(stage.reward, weakest=weakest)
    recipe = replace(
        recipe,
        stages={
            "sft": replace(sft_of(recipe), max_steps=1),
            "rl": replace(stage, steps=1, prompts=2, reward=reward),
        },
        evaluation=replace(recipe.evaluation, verifier=replace(recipe.evaluation.verifier, weakest=weakest), holdout=4),
    )
    folder, _ = start(recipe, tmp_path, LiveView(lines=True))
    assert json.loads((folder / "environment.json").read_text())["sandbox"]["tier"] == weakest
