"""Stated confidence: arithmetic, with answers that end with the probability of being correct.

The bundled model does not follow instructions, so it first imitates the format, with random confidences, and at a high
learning rate, since it was not trained on the characters of tags. Held-out answers are scored without the confidence,
which is recorded.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.calibrated import Calibrated
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.stated_confidence import StatedConfidence
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations


def stated_confidence() -> Recipe:
    """Two epochs of imitation, then groups of 16 answers."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, epochs=2.0, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    stage = replace(rl_of(recipe), rollout=Independent(n=16, sampling=Sampling(max_tokens=112)))
    return replace(
        recipe,
        name="stated_confidence",
        tasks=StatedConfidence(tasks=recipe.tasks),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Calibrated(correct=Match(), weight=0.0, malformed=None)),
    )
