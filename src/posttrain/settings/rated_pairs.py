"""Rated pairs: learning offline from two rated workings a task, compared with each other and with the first policy.

`tasks={kind: gathered, tasks: FILE}` brings data of one's own: a row with a prompt, a completion and a rating each, any
number of them for a prompt.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rollouts.recorded import Recorded
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.rated_workings import rated_workings


def rated_pairs() -> Recipe:
    """Rated workings, of which each task must have two, at a higher learning rate."""
    recipe = rated_workings()
    models = {"policy": recipe.models["policy"], "reference": Model(source="role:policy")}
    stage = rl_of(recipe)
    learner = replace(stage.learner, optimizer=AdamW(lr=3e-4))
    stage = replace(stage, rollout=Recorded(role="reference", fewest=2), learner=learner)
    return with_stage(replace(recipe, name="rated_pairs", models=models), stage)
