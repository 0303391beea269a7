"""Pedagogical alignment: imitation, then DPO of the reference turn against the model's own turn with a wrong label.

Source: Sonkar et al. 2024, arXiv:2402.05000 (luffycodes/Tutorbot-Spock at fcec4164). A tutor's turn is a record with
labels: evaluation of the student, action, state of the problem. The imitated model answers the prompts of another part
of the data once; its turn is rejected, and the reference chosen, where it is unreadable, lacks a field, or differs in a
label; where all agree there is no pair. The imitated model is the reference; beta 0.1.

    posttrain run tutors tasks=mine.jsonl model=FOLDER dpo.selection.pairing.fields=[evaluation,action,state]
    # columns: prompt, completion (the record), answer (the same record)
    posttrain diagnose records runs/tutors-1 tasks=test.jsonl fields=[evaluation,action,state]

The paper's other two losses: `loss.kind=ipo`, and for KTO `posttrain run kto` on what `tutors` changes, or
`posttrain run tutors+kto`. A model that is always right gives no pairs, and the run reports it.

Differs: the learning rates, epochs and batches are the setting's (2e-5 and 1e-7, 3 and 3, 16 and 32 in the paper).
Answers are sampled at temperature 1; how the release samples them is not in its scripts.

Measured here: after imitation of 150 records, 40 steps on 500 other turns (5 seeds): accuracy of the action 84.0 %
[82.6, 85.5] by DPO, 83.5 % by IPO, 82.7 % by KTO, and 79.3 % [75.5, 83.1] by more imitation of the same references:
+4.8 points [-0.2, +9.7] for DPO; of the state 89.3 % and 85.4 %, +4.0 [-0.7, +8.6]; of the evaluation 64.1 % both, and
all three 63.8 % and 63.9 %. The hint is likelier than the solution given, a token, in 99.6 % or more with each of them,
as before (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.pairings.fields_differ import FieldsDiffer
from posttrain.components.rewards.fields import Fields
from posttrain.components.selections.paired import Paired
from posttrain.errors import UserError
from posttrain.methods.preference.sft_dpo import sft_dpo
from posttrain.recipes.changes import preference_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.tutoring import tutoring

PARENT: Final = "sft_dpo"
SETTING: Final = "tutoring"
PAPER: Final = "arXiv:2402.05000"
ROWS: Final = (24,)


def tutors(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT then DPO: pairs are the reference and the model's own answer, where a label differs."""
    recipe = recipe or tutoring()
    verifier = recipe.evaluation.verifier
    if not isinstance(verifier, Fields):
        raise UserError(
            f"recipe '{recipe.name}' does not say which labels count; give "
            "evaluation.verifier={kind: fields, fields: [NAMES]}, or take the setting 'tutoring'"
        )
    recipe = sft_dpo(recipe)
    stage = preference_of(recipe)
    own = Paired(
        pairing=FieldsDiffer(fields=verifier.fields),
        reward=verifier,
        n=1,
        max_tokens=recipe.evaluation.sampling.max_tokens if recipe.evaluation.sampling else 128,
        skip=stage.skip,
    )
    return with_stage(replace(recipe, name="tutors"), replace(stage, selection=own, skip=0))
