"""GRPO-D: GRPO with a scheduled KL weight that first decays and then grows until the end of training.

Source: OThink-MR1, Liu et al. 2025, arXiv:2503.16081, sections 3.1 to 4.3: the KL weight starts in the middle between
its bounds, falls to the lower bound in the first 30 % of the steps, and rises to the upper bound until the end (0.04
and 0.1 for counting, 0 and 0.02 for geometry). The KL is the k3 estimate, inside the mean over an answer's tokens.

In the text of the paper the weight starts small and grows. For one linear schedule between the bounds:
``rl.penalties.kl.coefficient=0.04 rl.penalties.kl.final=0.1 rl.penalties.kl.until=1 rl.penalties.kl.after=null``.

Differs: text in place of images. The reference is the model after SFT on the answer format. No code was released: group
size and learning rate are the parent's.

Measured here: against a constant weight of 0.04 (12 steps of 8 x 8 on sums of two numbers after 40 updates of
imitation, 5 seeds): accuracy of sampled answers in the last five steps 25.9 % against 24.9 %, +1.1 points [-0.4, +2.5];
of greedy answers to another task, sums of three, 38.4 % against 36.6 %, +1.8 points [-0.4, +4.0]; KL 0.044 against
0.045 nats. Neither this schedule, nor a constant 0.1, nor a linear schedule makes a difference that five seeds can show
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
    """A change to GRPO: a KL weight that falls and rises, all groups kept, the loss averaged over answers."""
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
