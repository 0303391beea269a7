"""Refined sums: arithmetic of four or five numbers, after a lesson in correcting an answer that was criticised.

The bundled model knows no English: a critique is a mark and the answer, and what a refinement looks like is taught by
imitation on other sums. Bare attempts at sums of four or five numbers succeed now and then, where at sums of two
numbers of three digits none does and nothing is learned.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.refinements import Refinements
from posttrain.datasets.templates import Critiques
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations

TEXTS: Final = Critiques(
    right="ok",
    wrong="no",
    right_revealed="ok {answer}",
    wrong_revealed="no {answer}",
    request="{question}",
    refinement="{question}{attempt}\n{critique}\nA:",
)
"""For a model that knows no English: ``Q: 347+285\\nA: #### 531\\nno 632\\nA:``."""


def refined_sums() -> Recipe:
    """One pass over 1500 refinements, then arithmetic."""
    recipe, sums = arithmetic(), Arithmetic(size=1000, terms=(4, 5))
    lesson = sft_of(demonstrations())
    lesson = replace(
        lesson,
        tasks=Refinements(of=replace(sums, size=1500, seed=1), texts=TEXTS, bare=True),
        learner=replace(lesson.learner, optimizer=AdamW(lr=5e-4)),
    )
    return replace(recipe, name="refined_sums", tasks=sums, stages={"lesson": lesson, "rl": rl_of(recipe)})
