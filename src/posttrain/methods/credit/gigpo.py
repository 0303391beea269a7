"""GiGPO: GRPO for multi-turn agents, with group advantages of whole rollouts and of turns that start in the same state.

Source: Feng et al. 2025, arXiv:2505.10978, with the settings of the released scripts: 8 rollouts per task, 16 tasks per
step, omega 1, gamma 0.95 per turn, mean without division by the std, 0.1 subtracted for an invalid action, KL loss
0.01.

Differs: the default setting is a corridor. There is no KL term, and each rollout has the same weight (see the
advantage).

Measured here: omega 1 against 0 (15 steps, scaled by the std, 5 seeds): training success rate 34.9 % against 34.6 %,
+0.3 points [-0.0, +0.7]. In the first step of the first seed the gradient norm is twice as large, to which Adam is
invariant (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gigpo import GiGPO
from posttrain.recipes.changes import every_group, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.corridor import corridor

PARENT: Final = "grpo"
SETTING: Final = "corridor"
PAPER: Final = "arXiv:2505.10978"
ROWS: Final = (267,)
INHERITED: Final = {"penalties": "none; the released scripts have a KL loss with weight 0.01"}


def gigpo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: advantages of each turn in addition to those of the whole rollout; all groups kept."""
    recipe = recipe or corridor()
    stage = rl_of(recipe)
    stage = replace(stage, advantage=GiGPO(), filters=every_group(stage))
    return with_stage(replace(recipe, name="gigpo"), stage)
