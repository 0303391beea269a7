"""Episodic reaching: as `reaching`, but the rewards of all turns of an episode come together, with the last one."""

from dataclasses import replace

from posttrain.components.rollouts.control import Control
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.reaching import reaching


def episodic_reaching() -> Recipe:
    """A flow that imitates first, and 40 steps of 32 episodes."""
    recipe = reaching()
    stage = replace(rl_of(recipe), steps=40, prompts=32, rollout=Control(max_turns=4, episodic=True))
    return with_stage(replace(recipe, name="episodic_reaching"), stage)
