"""Padded sums: arithmetic, solved step by step with trivial steps in between, and a reward for every true step.

The bundled model first imitates worked solutions with trivial steps such as ``82+0=82``. A rule in place of a process
reward model scores the completion up to each step, 0.95 for a true equation; with the weight 0.2 these scores are added
to the reward of success. Held-out answers are scored for success only.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.equations import Equations
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.process import Process
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.padded_steps import PaddedSteps
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def padded_sums() -> Recipe:
    """60 updates of imitation, then 40 steps of 16 tasks with 4 rollouts each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, batch=16, max_steps=60, learner=replace(imitation.learner, optimizer=AdamW(lr=1e-3)))
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Independent(n=4, sampling=Sampling(max_tokens=128)),
        reward=Process(correct=Match(), steps=Equations()),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="padded_sums",
        tasks=PaddedSteps(tasks=recipe.tasks),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Match()),
    )
