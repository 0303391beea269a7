"""ExP-DPO: DPO on explanations that the policy writes with the answer in the prompt, against its own samples.

Source: Zhou et al. 2025 (ExPO), arXiv:2507.02834: chosen is an explanation c ~ pi(. | q, a) with the answer a after it,
rejected a sample of the bare question (`selections/explained`). This is the offline form: both are written once, by the
policy at the start of the stage. In the other form, `exp_dpo_renewed`, they are written again from time to time.

    posttrain run exp_dpo tasks=mine.jsonl model=FOLDER    # columns: prompt, answer

With `dpo.selection.rejected=wrong` only wrong samples are rejected.

Differs: known from notes on the paper's third version; beta is that of `dpo`. The prompt for explanations is that of
the bundled model, which was trained on it in the setting's warm-up; for other models set `dpo.selection.request`.

Measured here: five seeds, 200 held-out sums of four or five numbers: 43.1 % after the warm-up, then 44.6 % with pairs
of an explanation and a sample, +1.5 points [-1.4, +4.4], and 45.2 % with as many tasks' pairs of a correct and an
incorrect sample: ExP-DPO has 0.6 points less [-4.8, +3.6], which shows no difference (docs/experiments.md). At ten
times the rate, one seed, it falls to 5 %. The same texts as a likelihood term beside GRPO are `expo`.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.match import Match
from posttrain.components.selections.explained import Explained
from posttrain.methods.preference.dpo import dpo
from posttrain.recipes.changes import preference_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.explained_pairs import explained_pairs

PARENT: Final = "dpo"
SETTING: Final = "explained_pairs"
PAPER: Final = "arXiv:2507.02834"
ROWS: Final = (118,)

REQUEST: Final = "#### {answer}\n{question}"
"""The prompt of the warm-up in the setting `explained_pairs`: the answer, then the question as usual."""


def exp_dpo(recipe: Recipe | None = None) -> Recipe:
    """A change to DPO: pairs of an explanation and a sample."""
    recipe = dpo(recipe or explained_pairs())
    selection = Explained(reward=recipe.evaluation.verifier or Match(), request=REQUEST)
    return with_stage(replace(recipe, name="exp_dpo"), replace(preference_of(recipe), selection=selection))
