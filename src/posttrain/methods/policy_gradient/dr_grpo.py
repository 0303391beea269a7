"""Dr. GRPO: GRPO without two of its biases, the division by the group's reward std and by the completion's length.

Source: Liu et al. 2025, arXiv:2503.20783, section 3.2: the constant is the largest number of tokens of a completion.

Differs: nothing known.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.reducers.constant import Constant
from posttrain.recipes.changes import rl_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2503.20783"
ROWS: Final = ()


def dr_grpo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: advantages without division by the std, token losses summed and divided by a constant."""
    recipe = recipe or arithmetic()
    stage = rl_of(recipe)
    budget = Constant(length=float(sampling_of(stage).max_tokens))
    stage = replace(stage, advantage=GroupMean(scale="none"), reducer=budget)
    return with_stage(replace(recipe, name="dr_grpo"), stage)
