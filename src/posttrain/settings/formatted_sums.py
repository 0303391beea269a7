"""Formatted sums: arithmetic with thoughts and answer in tags, a format that is imitated first and rewarded then.

The bundled model does not follow instructions, so it learns the format from demonstrations.
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
    """Two epochs of imitation, then reinforcement with a reward of 1 for the correct answer and 1 for the format."""
    recipe = arithmetic()
    stage = rl_of(recipe)
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, epochs=2.0, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    reinforcement = replace(
        stage,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=96)),
        reward=Sum(parts={"accuracy": stage.reward, "format": Format()}),
    )
    return replace(
        recipe,
        name="formatted_sums",
        tasks=Tagged(tasks=recipe.tasks),
        stages={"sft": imitation, "rl": reinforcement},
        evaluation=replace(recipe.evaluation, verifier=stage.reward),
    )
