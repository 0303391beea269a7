"""Uneven sums: few tasks of very different difficulty, sums of two to nine numbers, evaluated every four steps.

The bundled model answers most sums of two, and nearly none of six or more. There are as many training tasks as three
steps in ten take, so that each is visited about three times; what a curriculum saves shows on the way, not at the end:
`posttrain compare --measure tokens_to:accuracy=0.25`.
"""

from dataclasses import replace

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic


def uneven_sums() -> Recipe:
    """Arithmetic with sums of two to nine numbers, 40 steps."""
    recipe = replace(
        arithmetic(),
        name="uneven_sums",
        tasks=Arithmetic(size=400, terms=(2, 9)),
        evaluation=Evaluation(every=4),
    )
    return with_stage(recipe, replace(rl_of(recipe), steps=40))
