"""DPO: direct preference optimization on pairs of completions, without a reward model and without sampling.

Source: Rafailov et al. 2023, arXiv:2305.18290, equation 7 and section 5; beta 0.1 and the warm-up as in its appendix B.

    posttrain run dpo tasks=mine.jsonl model=FOLDER    # columns: prompt, chosen, rejected, answer (to evaluate)

Differs: AdamW in place of RMSprop. The paper first fine-tunes on the preferred completions where the model has not been
trained on such data; here that is an additional sft stage before this one.

Measured here: five seeds on generated pairs: held-out accuracy 83.2 % with beta 0.1, 82.8 % with 0.5, and 84.2 % with
SFT on the preferred answers instead: no difference that five seeds can show (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.models import Model
from posttrain.recipes.changes import preference_of, with_models, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.sum_pairs import sum_pairs
from posttrain.stages.preference import PreferenceTraining
from posttrain.stages.rl import RL
from posttrain.training.settings import Learning

PARENT: Final = None
SETTING: Final = "sum_pairs"
PAPER: Final = "arXiv:2305.18290"
ROWS: Final = (197,)


def dpo(recipe: Recipe | None = None) -> Recipe:
    """The root of the preference methods: each pair is compared under the policy and under the initial model."""
    recipe = with_pairs(recipe or sum_pairs())
    stage = replace(preference_of(recipe), loss=DPO(), reducer=Sequences())
    return with_stage(with_models(replace(recipe, name="dpo"), {"reference": Model(source="role:policy")}), stage)


def with_pairs(recipe: Recipe, *, name: str = "dpo", learner: Learning | None = None) -> Recipe:
    """Adds a preference stage on the pairs of the recipe's tasks, before any RL; unchanged if it has one.

    `name` and `learner` are those of an added stage; the default learner is that of `sum_pairs`.
    """
    if any(isinstance(stage, PreferenceTraining) for stage in recipe.stages.values()):
        return recipe
    stage = preference_of(sum_pairs())
    new = {name: replace(stage, learner=learner or stage.learner)}
    reinforced = next((stage for stage in recipe.stages.values() if isinstance(stage, RL)), None)
    if reinforced is None:
        return replace(recipe, stages={**recipe.stages, **new})
    return with_stages_before(recipe, new, reinforced)
