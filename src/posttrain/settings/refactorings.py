"""Refactorings: the bundled model extracts a function from a small one.

It first imitates texts of which six in ten copy the function, three extract one, and one has a call that does not
resolve, so that its greedy texts are copies. The reward is 1 where all three checks pass, and so held-out texts count
as correct; with `evaluation.verifier.execution=true` results must be the same too.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.refactored import Refactored
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.refactorings import Refactorings
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def refactorings() -> Recipe:
    """350 updates of imitation, then 40 steps of 8 functions with 4 texts each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=3e-3))
    stage = replace(
        rl_of(recipe),
        steps=40,
        prompts=8,
        rollout=Independent(n=4, sampling=Sampling(max_tokens=96)),
        reward=Refactored(partial=False),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="refactorings",
        tasks=Refactorings(size=1500, copies=0.6, slips=0.1),
        stages={"sft": replace(imitation, batch=16, epochs=5.0, max_steps=350, learner=learner), "rl": stage},
        evaluation=Evaluation(verifier=Refactored(partial=False), holdout=100, sampling=Sampling(max_tokens=96)),
    )
