"""TRAAC: what it changes, and compressed rollouts in the record of a run."""

import json
from collections.abc import Callable

import pytest

from posttrain.components.rewards.sum import Sum
from posttrain.components.rollouts.compressed import Compressed
from posttrain.methods.rewards.traac import traac
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models

Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_what_traac_changes() -> None:
    stage = rl_of(traac())
    assert isinstance(stage.rollout, Compressed) and stage.rollout.roles == {"reference"}
    assert isinstance(stage.reward, Sum) and list(stage.reward.parts) == ["answer", "tags"] and not stage.filters
    assert traac().models["reference"].source == "role:policy"


@pytest.mark.slow
def test_compressed_rollouts_are_in_the_record(train: Train) -> None:
    changes = ["evaluation.by=none", "threads=1", "sft.max_steps=60", "rl.prompts=4", "rl.steps=2"]
    _, store = train(override(traac(), [*changes, "tasks.tasks.tasks.terms=[2, 2]", "rollout.eviction.uniform=1.0"]))
    rows = [json.loads(row["info"]) for row in store.rollouts(61)]
    assert all(row["difficulty"] in ("easy", "medium", "hard") for row in rows) and len(rows) == 32
    made = [row for row in rows if "compressed_from" in row]
    assert made and all(0 <= row["evicted"] < row["steps"] for row in made)
    assert any(row["steps"] > 1 for row in made)
