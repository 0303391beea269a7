"""Rounds: arithmetic in a few large rounds of 64 prompts, for methods with many updates per round."""

from dataclasses import replace

from posttrain.components.schedules.constant import Constant
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic


def rounds() -> Recipe:
    """Arithmetic in 25 rounds, with a short warm-up of the learning rate."""
    recipe = replace(arithmetic(), name="rounds")
    stage = rl_of(recipe)
    learner = replace(stage.learner, schedule=Constant(warmup=0.025))
    return with_stage(recipe, replace(stage, steps=25, prompts=64, learner=learner))
