"""Worked pairs: imitation of the chosen solutions of sum pairs; methods may use the pairs."""

from dataclasses import replace

from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.sum_pairs import sum_pairs


def worked_pairs() -> Recipe:
    """Two epochs of imitation."""
    recipe = demonstrations()
    imitation = replace(sft_of(recipe), epochs=2.0)
    return replace(recipe, name="worked_pairs", tasks=sum_pairs().tasks, stages={"sft": imitation})
