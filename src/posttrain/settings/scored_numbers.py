"""Scored numbers: the bundled model scores three numbers by the principle in its prompt, in JSON.

It imitates replies with the gold scores, and is then rewarded where the best number alone has the largest score.
Held-out items count where all numbers are in order.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.ranked_scores import RankedScores
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.ranked_numbers import RankedNumbers
from posttrain.components.tasks.ranking_items import RankingItems
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def scored_numbers() -> Recipe:
    """100 steps of imitation on 800 items, then 20 of reinforcement with 8 items and 8 replies each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=2e-3))
    stage = replace(
        rl_of(recipe),
        steps=20,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=160)),
        reward=RankedScores(measure="best", weight=0.0),
        learner=Learning(optimizer=AdamW(lr=5e-5)),
    )
    return replace(
        recipe,
        name="scored_numbers",
        tasks=RankingItems(tasks=RankedNumbers(size=1000)),
        stages={"sft": replace(imitation, limit=800, epochs=8.0, max_steps=100, learner=learner), "rl": stage},
        evaluation=Evaluation(holdout=60, verifier=RankedScores(weight=0.0), correct_at=0.999),
    )
