"""Short arithmetic: arithmetic with 30 steps, for methods that make several updates in each."""

from dataclasses import replace

from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic


def short_arithmetic() -> Recipe:
    """Arithmetic with 30 steps."""
    recipe = replace(arithmetic(), name="short_arithmetic")
    return with_stage(recipe, replace(rl_of(recipe), steps=30))
