"""GHPO and ADCL in runs: hints are in the record, and what is discarded or measured counts as sampled."""

import json
from collections.abc import Callable

import pytest

from posttrain.components.curricula.resorted import Resorted
from posttrain.components.rollouts.hinted import Hinted
from posttrain.components.rollouts.rewritten import Rewritten
from posttrain.methods.curriculum.adcl import adcl
from posttrain.methods.curriculum.ghpo import ghpo
from posttrain.recipes.changes import rl_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.stages import Models

Train = Callable[[Recipe], tuple[Models, RunStore]]
QUICK = ("evaluation.by=none", "threads=1", "prompts=3", "rollout.n=4")


def test_what_they_change() -> None:
    hinted, sorted_anew = rl_of(ghpo()), rl_of(adcl())
    assert isinstance(hinted.rollout, Hinted) and hinted.rollout.ladder == (0.25, 0.5, 0.75) and not hinted.filters
    assert isinstance(sorted_anew.rollout, Rewritten) and isinstance(sorted_anew.curriculum, Resorted)


@pytest.mark.slow
def test_hints_are_in_the_record_and_count_as_sampled(train: Train) -> None:
    recipe = override(ghpo(), [*QUICK, "steps=3", "tasks={kind: arithmetic, size: 40, terms: [7, 9]}"])
    _, store = train(recipe)
    first = store.metrics()[0]
    assert first["hinted"] > 0.5 and first["hints/0.75"] > 0.0
    shown = [json.loads(row["info"]) for row in store.rollouts(1)]
    assert all(info["hint_share"] in (0.25, 0.5, 0.75) for info in shown if "hint_share" in info)
    assert first["sampled_tokens"] > 1.2 * 12 * first["completion_tokens"], "discarded groups count"


@pytest.mark.slow
def test_measurements_count_and_inversions_are_reported(train: Train) -> None:
    changes = ["lesson.max_steps=1", "steps=3", "tasks.size=8", "curriculum.batches=4", "tasks.terms=[2, 4]"]
    _, store = train(override(adcl(), [*QUICK, *changes]))
    rows = [entry for entry in store.metrics() if entry["stage"] == "rl"]
    assert rows[0]["probe_tokens"] > 0 and rows[0]["curriculum/sorted_batches"] == 2.0
    assert 0.0 <= rows[-1]["curriculum/inversions"] <= 1.0
