"""Guarded lines: the bundled model writes numbers that should reach a line behind nested guards of a small program.

It first imitates solutions of which half miss one guard. The reward is for reaching the line; held-out lines are of
other programs.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.branch_distance import BranchDistance
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.guards import Guards
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def guarded_lines() -> Recipe:
    """80 updates of imitation, then 40 steps of 16 lines with 8 inputs each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=1e-3))
    reward = BranchDistance(credit="target")
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=24)),
        reward=reward,
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="guarded_lines",
        tasks=Guards(),
        stages={"sft": replace(imitation, batch=16, epochs=2.0, max_steps=80, learner=learner), "rl": stage},
        evaluation=Evaluation(tasks=Guards(size=50, seed=1), verifier=reward),
    )
