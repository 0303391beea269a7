"""SFT then DPO: imitation of demonstrations, then DPO on pairs, with the result of imitation as policy and reference.

Source: Raghavendra et al. 2025, arXiv:2502.11284, which splits a budget for annotation between the two stages. That is
a command: it makes the counts for each share, and with ``--grid`` trains every split from the initial model.

    posttrain run sft_dpo tasks=mine.jsonl model=FOLDER
    posttrain plan budget=100,400,1600 costs=1:3 --grid    # counts and accuracy by share of demonstrations
    posttrain diagnose cold_start pebble                   # how far the answers are from what the model writes
    # columns of mine.jsonl: prompt, completion, chosen, rejected, answer (to evaluate)

A share of 0 leaves the sft stage out, so that policy and reference are the initial model; a share of 1 leaves the pairs
out. The demonstrations of a split come first in the data, and its pairs are those of the examples after them.

Differs: read in notes and in a derivative's settings, not in the released code. All weights are trained, where the
paper trains LoRA adapters. Two epochs per stage as in the derivative, whose batches are of 16, learning rates 5e-5 and
5e-6, and beta of DPO 1.0 (`loss.beta=1`). Learning rates and batches here are for the bundled model.

Measured here: five seeds of 100 held-out sums in a form that the bundled model never samples, equal costs. Share 0: 0 %
at any budget, and no answer in the form. Budget 100: 12 % with demonstrations only, 0 % with fewer. Budget 400: 12, 40,
43 and 38 % with shares .25, .5, .75 and 1. Budget 1,200: 17, 48, 47, 47 and 38 % with shares .1, .25, .5, .75 and 1;
share .25 is 9.2 points above demonstrations only [1.7, 16.7]. So the cold start is as in the paper, and the best share
falls as the budget grows (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.schedules.constant import Constant
from posttrain.methods.preference.dpo import dpo
from posttrain.recipes.changes import preference_of, sft_of, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.tagged_pairs import tagged_pairs
from posttrain.stages.sft import SFT
from posttrain.training.settings import Learning

PARENT: Final = "dpo"
SETTING: Final = "tagged_pairs"
PAPER: Final = "arXiv:2502.11284"
ROWS: Final = (312,)


def sft_dpo(recipe: Recipe | None = None) -> Recipe:
    """A change to DPO: imitation comes first, at a learning rate of its own."""
    recipe = replace(dpo(recipe or tagged_pairs()), name="sft_dpo")
    if any(isinstance(stage, SFT) for stage in recipe.stages.values()):
        return recipe
    learner = Learning(optimizer=AdamW(lr=3e-3), schedule=Constant(warmup=0.1))
    imitation = replace(sft_of(demonstrations()), batch=8, epochs=2.0, learner=learner)
    return with_stages_before(recipe, {"sft": imitation}, preference_of(recipe))
