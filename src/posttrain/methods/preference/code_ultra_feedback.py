"""CodeUltraFeedback: answers under principles of one preference each, rated together; the best against a lower one.

Source: Weyssow et al. 2024, arXiv:2403.09032 (martin-wey/CodeUltraFeedback at 0525dde). Every instruction has one of
five preferences; four drawn models answer it, each under a drawn principle of the preference as its system prompt. A
judge rates all answers in one call, in a drawn order, from 1 to 5 by the rubric of the preference. Chosen is the best
answer, rejected a drawn lower one; ties give no pair. Imitation, then DPO from the imitated model, beta 0.1.

    posttrain run code_ultra_feedback tasks=mine.jsonl model=FOLDER models.judge.source=http://.../v1
    # columns: prompt, completion, preference (instruction, explanation, complexity, readability or style)

Several writers: `dpo.selection.writers=[policy,a,b,c]` and `models.a.source=...`. Own principles and rubrics: columns
``principles`` (a list of texts) and ``rubric``. Without a judge the reward of the setting's pairs rates.

Differs: the pairs of the paper were made outside its release; the rule is that of UltraFeedback. By default the policy
is the only writer, and all its weights are trained; the paper trains adapters (QLoRA). Sizes and rates are the
setting's.

Measured here (docs/experiments/styled_programs.py, 100 new instructions, five seeds): mean rating and share that passes
3.08 [2.98, 3.18] and .32 [.26, .38] after the warm-up, 2.97 [2.85, 3.10] and .42 [.36, .48] after imitation, 3.03
[2.68, 3.38] and .24 [.19, .29] after DPO alone, 3.17 [3.10, 3.24] and .32 [.23, .42] after both. As in the paper,
ratings are highest after both, and correctness after imitation alone: DPO adds .20 [.04, .35] to the rating, by spaces
around operators, and -.09 [-.19, .01] to the share. Unlike there, DPO alone gains nothing.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.pairings.best_and_lower import BestAndLower
from posttrain.components.rewards.rated_together import RatedTogether
from posttrain.components.selections.paired import Paired
from posttrain.components.selections.principled import Principled
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.methods.preference.sft_dpo import sft_dpo
from posttrain.recipes.changes import preference_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.styled_programs import styled_programs

PARENT: Final = "sft_dpo"
SETTING: Final = "styled_programs"
PAPER: Final = "arXiv:2403.09032"
ROWS: Final = (296,)

JUDGE: Final = "judge"


def code_ultra_feedback(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT then DPO: pairs are of answers under principles, rated together."""
    recipe = sft_dpo(recipe or styled_programs())
    stage = preference_of(recipe)
    given = stage.selection
    if JUDGE in recipe.models:
        reward = RatedTogether(role=JUDGE)
    elif isinstance(given, Paired):
        reward = RatedTogether(of=given.reward)
    else:
        raise UserError(
            f"recipe '{recipe.name}' has no model that rates answers: give models.judge.source, or start from "
            "the setting 'styled_programs'"
        )
    first, tokens = (given.first, given.max_tokens) if isinstance(given, Paired) else (None, 512)
    own = Principled(
        pairing=BestAndLower(), reward=reward, sampling=Sampling(max_tokens=tokens), skip=stage.skip, first=first
    )
    return with_stage(replace(recipe, name="code_ultra_feedback"), replace(stage, selection=own, skip=0))
