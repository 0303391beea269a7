"""GRPO: clipped policy gradient with rewards normalized within the rollouts of one task, without a critic.

Source: Shao et al. 2024 (DeepSeekMath), arXiv:2402.03300, section 4.1: 64 rollouts per task, group-normalized rewards,
clip 0.2, one update per batch, KL to the reference in the loss.

Differs: tokens are averaged over the whole step (DAPO, arXiv:2503.14476, section 3.3), and there is no KL term, as in
most later work; `penalties.kl.kind=kl` with a reference model restores it. The number of rollouts is the setting's.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.filters.zero_variance import ZeroVariance
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.reducers.tokens import Tokens
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.rl import RL

PARENT: Final = None
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2402.03300"
ROWS: Final = ()


def grpo(recipe: Recipe | None = None) -> Recipe:
    """The root of the RL methods: group-normalized rewards and PPO's clip, no critic and no KL."""
    recipe = with_rl(recipe or arithmetic())
    stage = replace(
        rl_of(recipe),
        filters={"zero_variance": ZeroVariance()},
        advantage=GroupMean(),
        objective=PPOClip(),
        reducer=Tokens(),
    )
    return with_stage(replace(recipe, name="grpo"), stage)


def with_rl(recipe: Recipe) -> Recipe:
    """Appends an RL stage to the recipe; unchanged if it has one."""
    if any(isinstance(stage, RL) for stage in recipe.stages.values()):
        return recipe
    return replace(recipe, stages={**recipe.stages, "rl": rl_of(arithmetic())})
