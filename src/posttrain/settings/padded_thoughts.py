"""Padded thoughts: sums of two to four numbers, solved in tags step by step, with trivial steps in between.

The bundled model first imitates worked solutions with trivial steps such as ``82+0=82``; the reward is for the answer
alone. Sums of two numbers are easy for it then, those of four are not.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.padded_steps import PaddedSteps
from posttrain.components.tasks.tagged import Tagged
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def padded_thoughts() -> Recipe:
    """Two epochs of imitation, then 30 steps of 8 tasks with 8 rollouts each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, epochs=2.0, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=30,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=160)),
        reward=Match(),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="padded_thoughts",
        tasks=Tagged(tasks=PaddedSteps(tasks=Arithmetic(size=2000, terms=(2, 4)), most=2)),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Match()),
    )
