"""Functional sums: arithmetic in tagged steps, with checks and repairs, after a warm-up on the tags.

The bundled model cannot be asked for a step by a prompt, so it first imitates generated solutions: tagged steps, checks
of some of them, and in a fifth of the solutions a slip that is found and repaired.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.tagged_steps import TaggedSteps
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

TOKENS: Final = 192
"""Most tokens of a solution."""


def functional_sums() -> Recipe:
    """A warm-up of 80 steps, then 20 steps of 8 tasks with 8 rollouts each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=3e-3))
    stage = replace(
        rl_of(recipe),
        steps=20,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=TOKENS)),
        reward=Match(extract=("answer_tag",)),
        learner=Learning(optimizer=AdamW(lr=1e-4)),
    )
    return replace(
        recipe,
        name="functional_sums",
        tasks=TaggedSteps(tasks=Arithmetic(size=2000, terms=(3, 3))),
        stages={"sft": replace(imitation, max_steps=80, epochs=2.0, learner=learner), "rl": stage},
        evaluation=Evaluation(holdout=100, verifier=stage.reward),
    )
