"""Patterns of letters: the bundled model names the pattern of a string, which it learns by imitation first."""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.patterns import Patterns
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def patterns_of_letters() -> Recipe:
    """Four epochs of imitation of 600 strings, then 60 steps of 16 tasks with 8 rollouts each."""
    recipe = arithmetic()
    imitation = replace(sft_of(demonstrations()), batch=16, epochs=4.0)
    imitation = replace(imitation, learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3)))
    stage = replace(
        rl_of(recipe),
        steps=60,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=24)),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
    )
    return replace(
        with_stage(recipe, stage),
        name="patterns_of_letters",
        tasks=Patterns(size=800),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(holdout=200, by="answers"),
    )
