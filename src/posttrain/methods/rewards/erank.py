"""ERank: a reranker scores one document at a time, and each score is rewarded by the ranking of all documents.

Source: arXiv:2509.00520, of which abstract, opening and a plan that quotes its formula could be read. The prompt has a
query and one document; the model thinks, then states an integer from 0 to 10 (`rollouts/pointwise`). Documents are
ranked by s Pr(s), the score times the probability of its tokens, in evaluation. After SFT on thoughts and scores, GRPO
rewards a rollout by the list of its query (`rewards/list_metric`), against the rollouts of the same document.

    posttrain run erank tasks=mine.jsonl model=FOLDER
    # columns: prompt (the query), prompts (a list: the query with one document each), relevant (a list: true, false)
    posttrain run erank tasks=mine.jsonl model=FOLDER reward.metric=ndcg reward.pairings=7
    posttrain run erank tasks=rows.jsonl model=FOLDER reward.together=query evaluation.verifier.together=query
    # columns: prompt (query and document), query, relevant (true or false); a row for each document

Differs: metric and lists are our own form: reciprocal rank, list j of the j-th rollouts of all documents, three more
drawn ones, ties and what states no score against the relevant; in the setting NDCG, with each rollout in its document's
place in all lists. Group sizes, KL and rates of the paper are not known.
The setting's model imitates noisy scores of other queries first; there is no stronger model.

Measured here over five seeds of a table (`docs/experiments/pointwise_lists.py`): MRR is 1.00 after 20 steps of 960
scores, 0.55 [0.50, 0.60] with a pointwise reward for coarse labels, which leaves 92 % of the queries with a tie for the
first rank; neither three drawn lists more nor each score in all lists makes a difference there. From a policy that
gives every document a 5, pessimistic ties reach 1.00, optimistic ones stay at 0.18: constant scores are then rewarded
like the right order.

In the default run, of 200 held-out queries 70.0 and 65.0 % (two seeds) have every relevant document before the others
after imitation of coarse scores, and 82.5 [76.6, 87.1] and 79.0 % [72.8, 84.1] after 80 steps. In a third seed, where
imitation alone gets 85.0 %, they fall to 73.5 % [67.0, 79.1], and to 79.5 % with half of the rate: the steps do not
improve every start. Sampled scores with the whole reward (all lists in the right order, without ties) become more
frequent in all three, from 4 to 10 % in the first 16 steps to 25 to 33 % in the last. Two faults of an earlier default
are removed, in which 30 steps made 20.5 % of 52.5 %. With 200 updates of imitation the model compared letters wrongly,
and its scores hardly depended on the document. And with lists of drawn neighbours (``reward.lists=joint
reward.pairings=3``) rollouts of a document differ mostly by the scores of other documents, which the standard deviation
scales up where the own score changes nothing; with every rollout in all lists 37.5 % were left after the same
imitation.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.document_mean import DocumentMean
from posttrain.components.rewards.list_metric import ListMetric
from posttrain.components.rollouts.pointwise import Pointwise
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of, rollouts_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.scored_documents import scored_documents

PARENT: Final = "grpo"
SETTING: Final = "scored_documents"
PAPER: Final = "arXiv:2509.00520"
ROWS: Final = (73,)


def erank(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: documents scored one at a time, rewarded by the ranking of all, compared by document."""
    recipe = grpo(keep_verifier(recipe or scored_documents()))
    stage = rl_of(recipe)
    reward = stage.reward if isinstance(stage.reward, ListMetric) else ListMetric()
    own = stage.rollout if isinstance(stage.rollout, Pointwise) else None
    rollout = own or Pointwise(n=rollouts_of(stage), sampling=sampling_of(stage))
    stage = replace(stage, rollout=rollout, reward=reward, advantage=DocumentMean())
    return with_stage(replace(recipe, name="erank"), stage)
