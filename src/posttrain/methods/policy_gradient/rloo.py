"""RLOO: REINFORCE with a leave-one-out baseline, the mean reward of a task's other rollouts, and the KL in the reward.

Source: Ahmadian et al. 2024, arXiv:2402.14740, section 3.3.

Differs: nothing known; the paper's KL coefficient lies between 0.03 and 0.1 by data set.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.rloo import RLOO
from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.penalties.kl import KL
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2402.14740"
ROWS: Final = ()


def rloo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: leave-one-out advantages, no ratio, KL in the reward, all groups kept."""
    recipe = recipe or arithmetic()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        advantage=RLOO(),
        objective=PolicyGradient(),
        penalties={**stage.penalties, "kl": KL(coefficient=0.03, form="k1", where="reward")},
        filters=every_group(stage),
    )
    recipe = with_models(replace(recipe, name="rloo"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
