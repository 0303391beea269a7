"""Short padded sums: padded sums of two or three numbers, whose answer is right before the last step in many of them.

The reward is for the answer alone.
"""

from dataclasses import replace

from posttrain.components.rewards.match import Match
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.padded_steps import PaddedSteps
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.padded_sums import padded_sums


def short_padded_sums() -> Recipe:
    """60 updates of imitation, then 60 steps of 16 tasks with 4 rollouts each."""
    recipe = padded_sums()
    recipe = replace(recipe, name="short_padded_sums", tasks=PaddedSteps(tasks=Arithmetic(size=2000, terms=(2, 3))))
    return with_stage(recipe, replace(rl_of(recipe), steps=60, reward=Match()))
