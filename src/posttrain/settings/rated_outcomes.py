"""Rated outcomes: offline learning from worked solutions that are rated 1 if correct and 0 otherwise."""

from dataclasses import replace

from posttrain.components.rollouts.recorded import Recorded
from posttrain.components.tasks.unpaired import Unpaired
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.rated_solutions import rated_solutions


def rated_outcomes() -> Recipe:
    """Rated solutions with ratings of 1 and 0, and log-probabilities under the current policy of each step."""
    recipe = rated_solutions()
    models = {"policy": recipe.models["policy"]}
    tasks = Unpaired(tasks=WorkedSolutions(size=2000, terms=(3, 4)), rejected=0.0)
    recipe = replace(recipe, name="rated_outcomes", models=models, tasks=tasks)
    return with_stage(recipe, replace(rl_of(recipe), rollout=Recorded(role="policy")))
