"""Mixed sums: arithmetic of two to five numbers, which are four kinds of task by their difficulty."""

from dataclasses import replace

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic


def mixed_sums() -> Recipe:
    """Arithmetic of more lengths."""
    return replace(arithmetic(), name="mixed_sums", tasks=Arithmetic(size=2000, terms=(2, 5)))
