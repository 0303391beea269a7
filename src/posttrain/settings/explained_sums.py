"""Explained sums: arithmetic of four or five numbers, after a warm-up on explanations of given answers.

The bundled model does not understand English. In the warm-up it imitates, on other sums, explanations of an answer that
is given before the question.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.refinements import Refinements
from posttrain.datasets.templates import Critiques
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations

TEXTS: Final = Critiques(right_revealed="{answer}", wrong_revealed="{answer}", refinement="#### {critique}\n{question}")
"""The prompt for an explanation: ``#### 10\\nQ: 12+5-8+1\\nA:``, the answer before the usual question."""


def explained_sums() -> Recipe:
    """One epoch over 1500 explanations, then longer sums."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    sums = Arithmetic(size=1000, terms=(4, 5))
    warmup = replace(
        imitation,
        tasks=Refinements(of=replace(sums, size=1500, seed=1), texts=TEXTS),
        learner=replace(imitation.learner, optimizer=AdamW(lr=5e-4)),
    )
    return replace(recipe, name="explained_sums", tasks=sums, stages={"lesson": warmup, **recipe.stages})
