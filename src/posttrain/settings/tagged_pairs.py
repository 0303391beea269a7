"""Tagged pairs: demonstrations and pairs of solutions of sums, in a form that the bundled model has not been shown.

The model solves a part of the sums, but writes the result after ``####``. Here only a result in ``<answer>`` counts, as
in the demonstrations and in both completions of every pair. So pairs alone do not show the form to a model that never
samples it.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.tasks.tagged import Tagged
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import preference_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.sum_pairs import sum_pairs


def tagged_pairs() -> Recipe:
    """Two epochs of DPO in batches of 8."""
    recipe = sum_pairs()
    stage = preference_of(recipe)
    learner = replace(stage.learner, optimizer=AdamW(lr=1e-4))
    return replace(
        with_stage(recipe, replace(stage, batch=8, epochs=2.0, learner=learner)),
        name="tagged_pairs",
        tasks=Tagged(tasks=recipe.tasks),
        evaluation=Evaluation(verifier=Match(extract=("answer_tag",)), sampling=Sampling(max_tokens=96)),
    )
