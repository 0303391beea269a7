"""REINFORCE++: KL-shaped rewards to go, normalised over the whole batch, with PPO's clip and no critic.

Source: Hu 2025, arXiv:2501.03262, section 3.

Differs: nothing known.
"""

from dataclasses import replace

from posttrain.components.advantages.reinforce_plus_plus import ReinforcePlusPlus
from posttrain.components.penalties.kl import KL
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, with_models, with_stage
from posttrain.recipe.tree import Recipe


def reinforce_plus_plus(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: global normalisation of token-level returns, k1 in the reward; every group counts."""
    recipe = recipe or grpo()
    stage = replace(
        rl_of(recipe),
        advantage=ReinforcePlusPlus(),
        penalties={"kl": KL(coefficient=0.01, form="k1", where="reward")},
        filters={},
    )
    recipe = with_models(replace(recipe, name="reinforce_plus_plus"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
