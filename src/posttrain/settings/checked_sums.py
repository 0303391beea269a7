"""Checked sums: arithmetic with a verifier, a copy of the model that learns to check solutions step by step.

The bundled model does not follow instructions, so the verifier imitates generated verifications.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.tasks.checked_solutions import CheckedSolutions
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations


def checked_sums() -> Recipe:
    """One epoch of supervised training for the verifier, then arithmetic."""
    recipe = arithmetic()
    form = sft_of(demonstrations())
    form = replace(
        form,
        role="verifier",
        tasks=CheckedSolutions(size=6000, terms=(2, 4)),
        learner=replace(form.learner, optimizer=AdamW(lr=3e-3)),
    )
    roles = {"verifier": Model(source="role:policy", trained=True)}
    stages = {"verifier": form, "rl": rl_of(recipe)}
    return with_models(replace(recipe, name="checked_sums", stages=stages), roles)
