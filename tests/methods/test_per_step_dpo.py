"""Per-step DPO in a run: pairs of the model's own incorrect answers, cut after a step."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from posttrain.components.pairings.first_pit import FirstPit
from posttrain.components.selections.paired import Paired
from posttrain.errors import UserError
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.preference.per_step_dpo import per_step_dpo
from posttrain.recipes.changes import preference_of
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.store import RunStore
from posttrain.settings.stepwise_sums import stepwise_sums
from posttrain.stages import Models

Train = Callable[[Recipe], tuple[Models, RunStore]]


def test_pairs_by_the_rule_with_the_papers_numbers() -> None:
    stage = preference_of(per_step_dpo())
    assert isinstance(stage.selection, Paired) and isinstance(stage.selection.pairing, FirstPit)
    rule = stage.selection.pairing
    assert (stage.selection.n, rule.n, rule.k, rule.pit, rule.shared) == (8, 5, None, "lowest", False)
    with pytest.raises(UserError, match="has no verifier to say which answers are correct"):
        per_step_dpo(replace(stepwise_sums(), evaluation=Evaluation()))


@pytest.mark.slow
def test_rejected_answers_end_with_a_step(train: Train) -> None:
    changes = [
        "sft.max_steps=16",
        "sft.batch=8",
        "sft.epochs=20",
        "dpo.max_steps=2",
        "evaluation.by=none",
        "threads=1",
        "tasks.size=12",
        "dpo.batch=12",
    ]
    _, store = train(override(per_step_dpo(), changes))
    assert "by 'first_pit' from" in " ".join(str(event) for event in store.events())
    rows = [row for step in store.rollout_steps() for row in store.rollouts(step) if row["stage"] == "dpo"]
    rejected = [row["completion"] for row in rows if json.loads(row["info"])["side"] == "rejected"]
    assert rejected and any(text.rstrip().endswith(";") for text in rejected)
