"""Passages: six numbered passages are put in order for a query; the reward is for relevant ones on top.

The bundled model first imitates the orders of a noisy teacher. A random order has an NDCG@10 of about 0.66.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.reranked import Reranked
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.passages import Passages
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def passages() -> Recipe:
    """200 updates of imitation, then 40 steps of 16 queries with 8 answers each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(
        imitation, batch=16, epochs=4.0, max_steps=200, learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3))
    )
    reward = Reranked(recall=0.0, overlap=0.0)
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=64)),
        reward=reward,
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="passages",
        tasks=Passages(size=1500),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=reward),
    )
