"""GRPO-D: GRPO whose pull towards the reference is let go at first, and becomes the stronger the longer it trains.

Source: OThink-MR1, Liu et al. 2025, arXiv:2503.16081, sections 3.1 to 4.3: the weight of the KL begins in the middle
between its bounds, falls to the lower one in the first 30 % of the steps, and rises to the upper one until the end
(0.04 and 0.1 for counting, 0 and 0.02 for geometry); k3 inside the mean over an answer's tokens.

The text of the paper says that the weight begins small and grows: ``rl.penalties.kl.coefficient=0.04
rl.penalties.kl.final=0.1 rl.penalties.kl.until=1 rl.penalties.kl.after=null``, one line between the bounds.

Differs: text in place of pictures; the reference is the model after the form was imitated. No code was released: group
size and learning rate are the parent's.

Measured here: against a constant weight of 0.04 (12 steps of 8 x 8 on sums of two numbers after 40 updates of
imitation, 5 seeds): sampled answers of the last five steps 25.9 % right against 24.9 %, +1.1 points [-0.4, +2.5];
greedy answers to another task, sums of three, 38.4 % against 36.6 %, +1.8 points [-0.4, +4.0]; divergence 0.044 against
0.045 nats. Neither this nor a constant 0.1 or one rising line is a difference that five seeds can show
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.formatted_sums import formatted_sums

PARENT: Final = "grpo"
SETTING: Final = "formatted_sums"
PAPER: Final = "arXiv:2503.16081"
ROWS: Final = (95,)


def grpo_d(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a KL whose weight falls and rises; every group counts, and every answer the same."""
    recipe = recipe or formatted_sums()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        filters=every_group(stage),
        penalties={**stage.penalties, "kl": KL(coefficient=0.07, final=0.04, until=0.3, after=0.1)},
        reducer=Sequences(),
    )
    recipe = with_models(replace(recipe, name="grpo_d"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
