"""REDI: imitate right workings, then learn from right and wrong ones together, the wrong ones with less weight.

Source: Xu et al. 2025, arXiv:2505.24850: plain imitation of a teacher's right traces, then one pass over pairs of a
right and a wrong trace with alpha 0.8, at a fiftieth of the learning rate, with 10 % warm-up and a linear fall. There
is no reference model. `loss.alpha=0` goes on imitating; at `loss.alpha=1` look at ``chosen_mean_logp``, which falls
where training collapses.

    posttrain run redi tasks=mine.jsonl model=FOLDER
    # columns: prompt, completion (right), chosen, rejected, answer (to evaluate)

A setting's own stage on pairs keeps its sizes and learning rate; where it has none, one is added with those of the
paper, but for the rate.

Differs: right and wrong traces of the default setting are generated sums (the paper: a large model's), of the same
tasks in both stages. Two passes of imitation (the paper: five). Rates are for the bundled model, which needs more than
a fiftieth in so few updates.

Measured here: after one pass of imitation (600 sums of four or five numbers, 31.2 % held-out accuracy; 5 seeds) one
pass over pairs: 37.8 %, DPO 33.4 % (REDI is higher by 4.4 points [1.5, 7.3]), and with alpha 0, more imitation, 41.4 %
(REDI is lower by 3.6 points [1.7, 5.5]). At four times the rate 41.6 %, and alpha 1 is lower by 6.6 points [4.7, 8.5],
with chosen completions 1.3 nats less likely [0.9, 1.6]: that the symmetric loss harms is seen, what negatives add to
imitation is not (docs/experiments.md).
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
    """A change to SFT: a stage on pairs comes after it, with a loss that compares with no reference."""
    learner = Learning(optimizer=AdamW(lr=5e-5), schedule=Linear(warmup=0.1))
    recipe = with_pairs(with_imitation(recipe or worked_pairs()), name="redi", learner=learner)
    stage = replace(preference_of(recipe), loss=REDI(), reducer=Sequences())
    return with_stage(replace(recipe, name="redi"), stage)
