"""Stepwise sums: worked solutions of longer sums, imitated first, then compared with answers that have a slip.

The bundled model makes most of its mistakes in one step of several; the pairs of the tasks are of generated slips.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.recipes.changes import preference_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.sum_pairs import sum_pairs


def stepwise_sums() -> Recipe:
    """Two epochs of imitation of 300 sums of four or five numbers, then two epochs of pairs of them."""
    recipe = sum_pairs()
    imitation, pairs = sft_of(demonstrations()), preference_of(recipe)
    imitation = replace(imitation, batch=16, epochs=2.0, learner=replace(imitation.learner, optimizer=AdamW(lr=1e-3)))
    pairs = replace(pairs, batch=16, epochs=2.0, learner=replace(pairs.learner, optimizer=AdamW(lr=1e-4)))
    return replace(
        recipe,
        name="stepwise_sums",
        tasks=WorkedSolutions(size=500, terms=(4, 5)),
        stages={"sft": imitation, "dpo": pairs},
    )
