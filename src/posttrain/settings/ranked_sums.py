"""Ranked sums: a model learns to criticize and score solutions of sums, and the policy from ranked pairs of them.

One task in five has two neighbouring ranks exchanged, as people err.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.tasks.ranked_solutions import RankedSolutions
from posttrain.models import Model
from posttrain.recipes.changes import preference_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.sum_pairs import sum_pairs
from posttrain.stages.critique_model import CritiqueModelTraining
from posttrain.training.settings import Learning

REQUEST = "{question}{completion}\nC:"
"""For the bundled model: the question, the solution, and the mark of a critique."""


def ranked_sums() -> Recipe:
    """60 steps for the model that criticizes, then one pass over pairs."""
    recipe = sum_pairs()
    learner = Learning(optimizer=AdamW(lr=1e-3))
    critic = CritiqueModelTraining(reducer=Sequences(), request=REQUEST, batch=16, max_steps=60, learner=learner)
    recipe = with_models(recipe, {"reward": Model(source="role:policy", projection=32, trained=True)})
    pairs = replace(preference_of(recipe), batch=32)
    return replace(
        recipe,
        name="ranked_sums",
        tasks=RankedSolutions(size=700, swapped=0.2),
        stages={"critique_model": critic, "dpo": pairs},
    )
