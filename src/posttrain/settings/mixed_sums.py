"""Mixed sums: arithmetic of two to five numbers, four levels of difficulty."""

from dataclasses import replace

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic


def mixed_sums() -> Recipe:
    """Arithmetic with more lengths of sums."""
    return replace(arithmetic(), name="mixed_sums", tasks=Arithmetic(size=2000, terms=(2, 5)))
