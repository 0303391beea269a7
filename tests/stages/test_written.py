"""Stages that train on checked rollouts of models: pairs for DPO, best answers for SFT."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from posttrain.components.selections.sampled import Sampled
from posttrain.methods.preference.dpo import dpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.changes import preference_of, sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages import Models
from tests.stages.conftest import with_reward

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]

ODD = "def score(completion):\n    return float(sum(map(ord, completion)) % 2)\n"


def odd(recipe: Recipe, tmp_path: Path) -> Any:
    """A reward of 1 for every second text."""
    return next(iter(with_reward(recipe, tmp_path, ODD).stages.values())).reward  # type: ignore[attr-defined]


@pytest.mark.slow
def test_pairs_of_a_stage_without_any_in_the_data(small: Small, train: Train, tmp_path: Path) -> None:
    reward = odd(small(arithmetic()), tmp_path)
    recipe = small(dpo(), "tasks={kind: arithmetic, size: 60, terms: [2, 2], demonstrate: false}", "batch=4")
    stage = replace(preference_of(recipe), selection=Sampled(reward=reward, n=32, max_tokens=40, first=20))
    _, store = train(with_stage(recipe, stage))
    note = next(event["message"] for event in store.events() if "give pairs" in event["message"])
    assert "of 20 tasks give pairs from 32 rollouts each by policy" in note
    rows = store.rollouts(1)
    assert rows and {row["side"] for row in map(info, rows)} == {"chosen", "rejected"}
    for row in rows:
        assert sum(map(ord, row["completion"])) % 2 == (info(row)["side"] == "chosen")


def info(row: Any) -> Any:
    return row["info"] if isinstance(row["info"], dict) else json.loads(row["info"])


@pytest.mark.slow
def test_best_answers_in_place_of_the_given_ones(small: Small, train: Train, tmp_path: Path) -> None:
    reward = odd(small(arithmetic()), tmp_path)
    recipe = small(sft(demonstrations()), "tasks.terms=[2, 2]", "batch=4")
    given = {text for task in recipe.tasks.load() for text in task.demonstrations}
    stage = replace(sft_of(recipe), selection=Sampled(reward=reward, use="best_of", n=4, max_tokens=8))
    _, store = train(with_stage(recipe, stage))
    assert not {row["completion"] for row in store.rollouts(1)} & given
