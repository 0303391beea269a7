"""Compared sums: the bundled model learns to judge which of two sums is larger.

It first imitates thoughts with both results and a verdict (`tasks/judge_items`), and is then rewarded for the right
verdict. Held-out items are asked in both orders, so that a preference for a place shows.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.right_verdict import RightVerdict
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.compared_sums import ComparedSums
from posttrain.components.tasks.judge_items import JudgeItems
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def compared_sums() -> Recipe:
    """40 steps of imitation on 300 items, then 20 of reinforcement with 16 items and 8 replies each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=2e-3))
    stage = replace(
        rl_of(recipe),
        steps=20,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=64)),
        reward=RightVerdict(),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
    )
    return replace(
        recipe,
        name="compared_sums",
        tasks=JudgeItems(tasks=ComparedSums(size=1000)),
        stages={"sft": replace(imitation, limit=300, epochs=8.0, max_steps=40, learner=learner), "rl": stage},
        evaluation=Evaluation(tasks=JudgeItems(tasks=ComparedSums(size=100, seed=1), order="both"), holdout=200),
    )
