"""Steered ideas: the bundled model imitates ideas of three sentences, which have a score for each of three dimensions.

The policy is then rewarded by code, for all dimensions or for those that a task gives strengths to: an idea has a
dimension that has more than half of its letters. Held-out ideas are scored in the same way. Imitated ideas are
drawn by chance and no right answers, so the audit of a reward model only measures.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.annotators.noise import Noise
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.steered import Steered as Weighed
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.ideas import DIMENSIONS, Ideas
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.rl.reward_audit import MEASURED
from posttrain.training.settings import Learning

RATERS: Final = (Noise(spread=0.3, shape="normal"),)
"""Who scores ideas: with normal noise of standard deviation .3."""


def steered_ideas() -> Recipe:
    """40 steps of imitation, then 30 of 8 prompts with 8 ideas each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=2e-3))
    imitation = replace(
        imitation, epochs=2.0, max_steps=40, tasks=Ideas(size=1200, seed=1, annotators=RATERS), learner=learner
    )
    by_code = Weighed(parts={name: Regex(pattern=f"^(?:[^{x}]*{x}){{8}}") for name, x in DIMENSIONS.items()})
    stage = replace(
        rl_of(recipe),
        steps=30,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=28)),
        reward=by_code,
        learner=Learning(optimizer=AdamW(lr=1e-3)),
        audit=MEASURED,
    )
    return replace(
        recipe,
        name="steered_ideas",
        tasks=Ideas(size=2000, annotators=RATERS),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(holdout=100, verifier=by_code),
    )
