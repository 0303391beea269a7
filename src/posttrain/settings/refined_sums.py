"""Refined sums: arithmetic of four or five numbers, after a warm-up on refinements of criticised answers.

The bundled model does not understand English, so a critique is a mark and the answer, and refinements are imitated on
other sums first. Some rollouts of sums of four or five numbers are correct, while none is for sums of two numbers of
three digits, so that nothing would be learned from those.
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
"""Templates for a model without English: ``Q: 347+285\\nA: #### 531\\nno 632\\nA:``."""


def refined_sums() -> Recipe:
    """One epoch over 1500 refinements, then arithmetic."""
    recipe, sums = arithmetic(), Arithmetic(size=1000, terms=(4, 5))
    warmup = sft_of(demonstrations())
    warmup = replace(
        warmup,
        tasks=Refinements(of=replace(sums, size=1500, seed=1), texts=TEXTS, bare=True),
        learner=replace(warmup.learner, optimizer=AdamW(lr=5e-4)),
    )
    return replace(recipe, name="refined_sums", tasks=sums, stages={"lesson": warmup, "rl": rl_of(recipe)})
