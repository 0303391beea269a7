"""Rated outcomes: learning offline from workings that are rated 1 where they are right and 0 where they are not."""

from dataclasses import replace

from posttrain.components.rollouts.recorded import Recorded
from posttrain.components.tasks.unpaired import Unpaired
from posttrain.components.tasks.workings import Workings
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.rated_workings import rated_workings


def rated_outcomes() -> Recipe:
    """Rated workings with ratings of 1 and 0, whose log-probabilities are those of the policy in every step."""
    recipe = rated_workings()
    models = {"policy": recipe.models["policy"]}
    tasks = Unpaired(tasks=Workings(size=2000, terms=(3, 4)), rejected=0.0)
    recipe = replace(recipe, name="rated_outcomes", models=models, tasks=tasks)
    return with_stage(recipe, replace(rl_of(recipe), rollout=Recorded(role="policy")))
