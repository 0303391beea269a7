"""Formatted sums: arithmetic with thoughts and answer in tags, a form that is imitated first and rewarded then.

The bundled model does not follow instructions, so that it learns the form from demonstrations.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.sum import Sum
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.tagged import Tagged
from posttrain.engines import Sampling
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations


def formatted_sums() -> Recipe:
    """Two passes of imitation, then reinforcement with 1 for the right answer and 1 for the form."""
    recipe = arithmetic()
    stage = rl_of(recipe)
    form = sft_of(demonstrations())
    form = replace(form, epochs=2.0, learner=replace(form.learner, optimizer=AdamW(lr=3e-3)))
    practice = replace(
        stage,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=96)),
        reward=Sum(parts={"accuracy": stage.reward, "format": Format()}),
    )
    return replace(
        recipe,
        name="formatted_sums",
        tasks=Tagged(tasks=recipe.tasks),
        stages={"sft": form, "rl": practice},
        evaluation=replace(recipe.evaluation, verifier=stage.reward),
    )
