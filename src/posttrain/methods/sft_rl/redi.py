"""REDI: SFT on correct reasoning traces, then a reference-free pairwise loss with down-weighted incorrect traces.

Source: Xu et al. 2025, arXiv:2505.24850: SFT on a teacher's correct traces, then one epoch over pairs of a correct and
an incorrect trace with alpha 0.8, at a fiftieth of the learning rate, with 10 % warm-up and linear decay. There is no
reference model. `loss.alpha=0` is more SFT. At `loss.alpha=1` watch ``chosen_mean_logp``, which falls when training
collapses.

    posttrain run redi tasks=mine.jsonl model=FOLDER
    # columns: prompt, completion (correct), chosen, rejected, answer (to evaluate)

A preference stage of the setting keeps its sizes and learning rate. Where it has none, one is added with those of the
paper, except for the learning rate.

Differs: correct and incorrect traces of the default setting are generated sums (the paper: a large model's), of the
same tasks in both stages. Two epochs of SFT (the paper: five). Learning rates are for the bundled model, which needs
more than a fiftieth in so few updates.

Measured here: after one epoch of SFT (600 sums of four or five numbers, 31.2 % held-out accuracy; 5 seeds) one epoch of
pairs: 37.8 %, DPO 33.4 % (REDI is higher by 4.4 points [1.5, 7.3]), and with alpha 0, more SFT, 41.4 % (REDI is lower
by 3.6 points [1.7, 5.5]). At four times the learning rate 41.6 %, and alpha 1 is lower by 6.6 points [4.7, 8.5], with
chosen completions 1.3 nats less likely [0.9, 1.6]. The symmetric loss does harm; no gain of negatives over SFT is seen
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.preferences.redi import REDI
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.schedules.linear import Linear
from posttrain.methods.preference.dpo import with_pairs
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.recipes.changes import preference_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.worked_pairs import worked_pairs
from posttrain.training.settings import Learning

PARENT: Final = "sft"
SETTING: Final = "worked_pairs"
PAPER: Final = "arXiv:2505.24850"
ROWS: Final = (98,)


def redi(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT: a preference stage follows, with a reference-free loss."""
    learner = Learning(optimizer=AdamW(lr=5e-5), schedule=Linear(warmup=0.1))
    recipe = with_pairs(with_imitation(recipe or worked_pairs()), name="redi", learner=learner)
    stage = replace(preference_of(recipe), loss=REDI(), reducer=Sequences())
    return with_stage(replace(recipe, name="redi"), stage)
