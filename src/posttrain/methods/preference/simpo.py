"""SimPO: preference optimization with the mean log-probability of a completion as its reward, without a reference.

Source: Meng et al. 2024, arXiv:2405.14734, and its released code (github.com/princeton-nlp/SimPO). Beta 2 and gamma 1
are of the size of its main results; there the learning rate is a tenth to a half of DPO's usual one, and larger ones
make the model degenerate.

    posttrain run simpo tasks=mine.jsonl model=FOLDER    # columns: prompt, chosen, rejected, answer (to evaluate)

Differs: the setting keeps its learning rate, which is for the bundled model, and its schedule (a cosine in the paper).

Measured here: five seeds on generated pairs: held-out accuracy 83.2 % with SimPO and with DPO: no difference that five
seeds can show, 0 points [-4.6, +4.6] (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.preferences.simpo import SimPO
from posttrain.methods.preference.dpo import dpo
from posttrain.recipes.changes import preference_of, with_stage, without_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.sum_pairs import sum_pairs

PARENT: Final = "dpo"
SETTING: Final = "sum_pairs"
PAPER: Final = "arXiv:2405.14734"
ROWS: Final = ()


def simpo(recipe: Recipe | None = None) -> Recipe:
    """A change to DPO: the reward is a mean over tokens, the margin has a target, and there is no reference."""
    recipe = dpo(recipe or sum_pairs())
    changed = with_stage(replace(recipe, name="simpo"), replace(preference_of(recipe), loss=SimPO()))
    return without_models(changed, "reference")
