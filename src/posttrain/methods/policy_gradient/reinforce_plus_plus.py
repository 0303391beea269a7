"""REINFORCE++: critic-free PPO with KL-shaped returns normalized over the whole batch.

Source: Hu 2025, arXiv:2501.03262, section 3.

Differs: nothing known.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.reinforce_plus_plus import ReinforcePlusPlus
from posttrain.components.penalties.kl import KL
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2501.03262"
ROWS: Final = ()


def reinforce_plus_plus(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: token-level returns normalized over the batch, k1 KL in the reward, all groups kept."""
    recipe = recipe or arithmetic()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        advantage=ReinforcePlusPlus(),
        penalties={**stage.penalties, "kl": KL(coefficient=0.01, form="k1", where="reward")},
        filters=every_group(stage),
    )
    recipe = with_models(replace(recipe, name="reinforce_plus_plus"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
