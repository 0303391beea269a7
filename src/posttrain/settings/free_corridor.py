"""Free corridor: the corridor without a penalty for invalid actions, which only use up a turn."""

from dataclasses import replace

from posttrain.components.environments.corridor import Corridor
from posttrain.components.rollouts.turns import Turns
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.corridor import corridor


def free_corridor() -> Recipe:
    """The corridor without a penalty, for methods with turn rewards of their own."""
    recipe = corridor()
    stage = rl_of(recipe)
    assert isinstance(stage.rollout, Turns), "the corridor has rollouts of several turns"
    rollout = replace(stage.rollout, environment=Corridor(invalid_penalty=0.0))
    return with_stage(replace(recipe, name="free_corridor"), replace(stage, rollout=rollout))
