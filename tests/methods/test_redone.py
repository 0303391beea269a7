"""RedOne 2.0: three stages, the second of which imitates what stayed weak."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.selections.weak_kinds import WeakKinds
from posttrain.errors import UserError
from posttrain.methods.sft_rl.redone import redone
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.store import RunStore
from posttrain.settings.several_kinds import several_kinds
from posttrain.stages import Models

Small = Callable[..., Recipe]
Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_the_stages() -> None:
    stages: Any = redone().stages
    assert list(stages) == ["explore", "repair", "refine"]
    assert (stages["explore"].steps, stages["refine"].steps) == (40, 20)
    for name in ("explore", "refine"):
        assert isinstance(stages[name].reducer, Sequences) and not stages[name].penalties
        assert (stages[name].objective.clip_low, stages[name].objective.clip_high) == (0.2, 0.28)
    assert (stages["explore"].curriculum.kind, stages["refine"].curriculum.kind) == ("uniform", "prioritized")
    selection = stages["repair"].selection
    assert isinstance(selection, WeakKinds) and (selection.targets, selection.n, selection.general) == ("own", 8, 0.056)


@pytest.mark.slow
def test_a_kind_above_the_threshold_gives_no_rows_and_refining_goes_on_from_there(
    small: Small, train: Train, tmp_path: Path
) -> None:
    """A reward of 1 for every answer to one kind: rows of the other kind alone are imitated."""
    (tmp_path / "even.py").write_text("def score(completion, prompt):\n    return float(prompt.startswith('Q:'))\n")
    sources = "{sums: {kind: arithmetic, size: 40, terms: [2, 2]}, sort: {kind: exercises, names: [sort], size: 40}}"
    recipe = small(
        redone(several_kinds()),
        f"tasks={{kind: mixture, domains: source, sources: {sources}}}",
        f"explore.reward={tmp_path / 'even.py'}:score",
        f"refine.reward={tmp_path / 'even.py'}:score",
        "explore.steps=1",
        "refine.steps=1",
        f"repair.selection.reward={tmp_path / 'even.py'}:score",
        "repair.selection.general=0",
        "repair.selection.max_tokens=4",
        "repair.batch=8",
        "repair.max_steps=2",
    )
    _, store = train(recipe)
    note = next(event["message"] for event in store.events() if "weak kinds" in event["message"])
    assert "sort 0%" in note and "others: sums 100%" in note
    repaired = [entry["step"] for entry in store.metrics() if entry["stage"] == "repair"]
    assert {row["domain"] for step in repaired for row in store.rollouts(step)} == {"sort"}
    assert [entry["stage"] for entry in store.metrics()] == ["explore", "repair", "repair", "refine"]


def test_an_unknown_kind_is_refused_before_sampling() -> None:
    recipe = override(redone(), ["tasks.domains=own"])
    context = RunContext(recipe, torch.device("cpu"))
    with pytest.raises(UserError, match="the routed reward has no part for it"):
        context.check(context.first_models())
