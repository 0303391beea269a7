"""Rated solutions: offline learning from given worked solutions of sums, rated +1 if correct and -1 with a slip.

The behavior policy is taken to be the initial policy, of which a frozen copy is kept. `tasks=FILE` takes a file of
yours, one row per prompt, completion and rating. The policy answers the held-out tasks.
"""

from dataclasses import replace

from posttrain.components.rewards.match import Match
from posttrain.components.rewards.rating import Rating
from posttrain.components.rollouts.recorded import Recorded
from posttrain.components.tasks.unpaired import Unpaired
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sampling_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic


def rated_solutions() -> Recipe:
    """Correct solutions and solutions with a slip, in 60 steps of 32 tasks."""
    recipe = arithmetic()
    stage = rl_of(recipe)
    recipe = replace(
        recipe,
        name="rated_solutions",
        tasks=Unpaired(tasks=WorkedSolutions(size=2000, terms=(3, 4))),
        evaluation=replace(recipe.evaluation, verifier=Match(), sampling=sampling_of(stage)),
    )
    recipe = with_models(recipe, {"behavior": Model(source="role:policy")})
    return with_stage(recipe, replace(stage, steps=60, prompts=32, rollout=Recorded(), reward=Rating()))
