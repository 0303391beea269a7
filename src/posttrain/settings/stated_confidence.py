"""Stated confidence: arithmetic, with an answer that ends by saying how likely it is to be right.

The bundled model does not follow instructions, so that it first imitates the form, with random confidences and at a
high learning rate, as it has never seen the signs of a tag. Held-out answers are judged by the answer alone; their
confidences are recorded beside it.
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
    """Two passes of imitation, then groups of 16 answers."""
    recipe = arithmetic()
    form = sft_of(demonstrations())
    form = replace(form, epochs=2.0, learner=replace(form.learner, optimizer=AdamW(lr=3e-3)))
    stage = replace(rl_of(recipe), rollout=Independent(n=16, sampling=Sampling(max_tokens=112)))
    return replace(
        recipe,
        name="stated_confidence",
        tasks=StatedConfidence(tasks=recipe.tasks),
        stages={"sft": form, "rl": stage},
        evaluation=Evaluation(verifier=Calibrated(correct=Match(), weight=0.0, malformed=None)),
    )
