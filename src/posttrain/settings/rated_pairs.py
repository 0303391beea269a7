"""Rated pairs: offline learning from two rated solutions per task, compared with each other and the initial policy.

`tasks={kind: gathered, tasks: FILE}` takes a file of yours, one row per prompt, completion and rating, with any number
of rows per prompt.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rollouts.recorded import Recorded
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.rated_solutions import rated_solutions


def rated_pairs() -> Recipe:
    """Rated solutions, two or more per task, at a higher learning rate."""
    recipe = rated_solutions()
    models = {"policy": recipe.models["policy"], "reference": Model(source="role:policy")}
    stage = rl_of(recipe)
    learner = replace(stage.learner, optimizer=AdamW(lr=3e-4))
    stage = replace(stage, rollout=Recorded(role="reference", fewest=2), learner=learner)
    return with_stage(replace(recipe, name="rated_pairs", models=models), stage)
