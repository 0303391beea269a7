"""Pedagogical alignment: pairs come from the model's own records, and KTO takes them too."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from posttrain.components.pairings.fields_differ import FieldsDiffer
from posttrain.components.selections.paired import Paired
from posttrain.errors import AlarmStop, UserError
from posttrain.methods.preference.kto import kto
from posttrain.methods.preference.tutors import tutors
from posttrain.recipes.changes import preference_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.sum_pairs import sum_pairs
from posttrain.settings.tutoring import IMITATED
from posttrain.stages import Models
from posttrain.stages.kto import KTO

Train = Callable[[Recipe], tuple[Models, RunStore]]
SHORT = ("sft.epochs=2", "evaluation.by=none", "threads=1")


def test_pairs_are_of_the_part_that_is_not_imitated() -> None:
    stage = preference_of(tutors())
    assert isinstance(stage.selection, Paired) and isinstance(stage.selection.pairing, FieldsDiffer)
    assert (stage.selection.skip, stage.skip, stage.selection.n) == (IMITATED, 0, 1)


def test_labels_must_be_named() -> None:
    with pytest.raises(UserError, match="does not say which labels count"):
        tutors(sum_pairs())


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["dpo", "ipo", "kto"])
def test_three_losses_learn_from_own_records(loss: str, train: Train) -> None:
    recipe = kto(tutors()) if loss == "kto" else tutors()
    recipe = override(recipe, [*SHORT, "dpo.max_steps=2", "tasks.size=190"])
    if loss == "ipo":
        recipe = override(recipe, ["dpo.loss={kind: ipo}"])
    assert isinstance(recipe.stages["dpo"], KTO) == (loss == "kto")
    _, store = train(replace(recipe, name=loss))
    notes = " ".join(str(event) for event in store.events())
    assert "by 'fields_differ' from" in notes
    assert [entry["stage"] for entry in store.metrics()].count("dpo") == 2


def test_a_model_that_is_always_right_stops_the_run() -> None:
    selection = preference_of(tutors()).selection
    assert isinstance(selection, Paired)
    row = {"pairs": [], "reason": "all fields agree", "rollouts": 0}
    with pytest.raises(AlarmStop, match="makes no pair of any of 2 tasks: 2 without: all fields agree"):
        selection.choose(tutors().tasks.load()[:2], [row, row])
