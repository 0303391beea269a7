"""Tagged sums: arithmetic, with the steps in ``<think>`` and the result in ``<answer>``.

The bundled model does not follow instructions, so it first imitates the format, at a high learning rate.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.tagged import Tagged
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations


def tagged_sums() -> Recipe:
    """Two epochs of imitation, then 30 steps with groups of 8 answers."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, epochs=2.0, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    stage = replace(rl_of(recipe), steps=30, rollout=Independent(n=8, sampling=Sampling(max_tokens=96)))
    return replace(
        recipe,
        name="tagged_sums",
        tasks=Tagged(tasks=recipe.tasks),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Match()),
    )
