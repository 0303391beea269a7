"""GiGPO: agents of several turns, compared as whole attempts and turn by turn where they came to the same state.

Source: Feng et al. 2025, arXiv:2505.10978, with the settings of the released scripts: 8 attempts a task, 16 tasks a
step, omega 1, gamma 0.95 a turn, mean without deviation, 0.1 off for an invalid action, KL loss 0.01.

Differs: the default setting is a corridor. There is no KL term, and whole attempts count once each (see the advantage).

Measured here: omega 1 against 0 (15 steps, deviation scale, 5 seeds): solved while training 34.9 % against 34.6 %, +0.3
points [-0.0, +0.7]; the gradient is twice as long in the first step of the first seed, which Adam does not notice
(docs/experiments.md).
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
    """A change to GRPO: credit for each turn, beside that of the whole attempt; every group counts."""
    recipe = recipe or corridor()
    stage = rl_of(recipe)
    stage = replace(stage, advantage=GiGPO(), filters=every_group(stage))
    return with_stage(replace(recipe, name="gigpo"), stage)
