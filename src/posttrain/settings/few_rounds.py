"""Few rounds: arithmetic in four rounds of 64 prompts with 16 rollouts each, for off-policy methods."""

from dataclasses import replace

from posttrain.components.rollouts.independent import Independent
from posttrain.recipes.changes import rl_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic


def few_rounds() -> Recipe:
    """Arithmetic with 1024 rollouts per round, for many updates on each."""
    recipe = replace(arithmetic(), name="few_rounds")
    stage = rl_of(recipe)
    rollout = Independent(n=16, sampling=sampling_of(stage))
    return with_stage(recipe, replace(stage, steps=4, prompts=64, rollout=rollout))
