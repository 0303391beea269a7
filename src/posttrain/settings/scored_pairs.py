"""Scored pairs: the bundled model thinks about two digits by the principle in its prompt, and scores both in JSON.

It imitates thoughts and coarse points with errors, which often tie, and is then rewarded where the better digit has
the larger score. Held-out items count in the same way, so that a tie does not.
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


def scored_pairs() -> Recipe:
    """100 steps of imitation on 1,200 items, then 40 of reinforcement with 16 items and 8 replies each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=2e-3))
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=96)),
        reward=RankedScores(measure="best", weight=0.0),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="scored_pairs",
        tasks=RankingItems(
            tasks=RankedNumbers(size=2000, candidates=2, largest=9, thoughts=True, points=0.3), ranking=False
        ),
        stages={"sft": replace(imitation, limit=1200, epochs=4.0, max_steps=100, learner=learner), "rl": stage},
        evaluation=Evaluation(holdout=200, verifier=RankedScores(measure="best", weight=0.0)),
    )
