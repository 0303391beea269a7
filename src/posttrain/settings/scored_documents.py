"""Scored documents: a query's six documents are scored from 0 to 10, one at a time; the reward is for their ranking.

The bundled model first imitates coarse scores of documents of other queries. Held-out queries are ranked by s Pr(s),
and count where every relevant document is before the others.
"""

from dataclasses import replace

from posttrain.components.advantages.document_mean import DocumentMean
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.list_metric import ListMetric
from posttrain.components.rollouts.pointwise import Pointwise
from posttrain.components.tasks.scored_documents import ScoredDocuments
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

IMITATED = ScoredDocuments(size=500, seed=1, each="document")


def scored_documents() -> Recipe:
    """500 updates of imitation, then 80 steps of 8 queries with 6 documents and 4 scores each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=1e-3))
    imitation = replace(imitation, batch=16, epochs=4.0, max_steps=500, learner=learner, tasks=IMITATED)
    stage = replace(
        rl_of(recipe),
        steps=80,
        prompts=8,
        rollout=Pointwise(n=4, sampling=Sampling(max_tokens=24)),
        reward=ListMetric(metric="ndcg", pairings=0, lists="replaced"),
        advantage=DocumentMean(),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="scored_documents",
        tasks=ScoredDocuments(),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=ListMetric(metric="ndcg", pairings=0, weighted=True)),
    )
