"""ReasonRank: GRPO on a list of passages, for NDCG, recall and the overlap with a teacher's order, near the SFT model.

Source: arXiv:2508.07050 and its release (8421BCD/ReasonRank at 06721fd6). The reward is NDCG@10 + 0.2 recall@10 + 0.1
average overlap, 0 for what is no order of the passages, -1 without tags (`rewards/reranked`). 8 rollouts of 16 queries,
two updates a batch, a KL of 0.001 (k3) to the model before reinforcement in the loss, every group. Before it the model
imitates thoughts and orders of a teacher, of which those with an NDCG@10 above 0.4 are kept (`tasks/passages`).

    posttrain run reasonrank tasks=mine.jsonl model=FOLDER
    # columns: prompt (the query and passages numbered from 1), relevant ([2, 4]), order ([2, 4, 1, 3]), completion

More passages than fit in a prompt are ranked in windows: `posttrain diagnose windows MODEL tasks=mine.jsonl`.

Differs: answers must name every passage once (`reward.strict=false` reads as the release does). The teacher's orders
here are made by code; learning rates are the setting's.

Measured here, five seeds of a table that ranks six passages by a noisy score (`docs/experiments/reranking.py`): where
one passage is relevant, 10.1 % [8.9, 11.3] of the groups have equal rewards with NDCG alone, and 0.1 % [0.1, 0.2] with
recall and overlap; where three are, 4.1 % [3.6, 4.6] and 0.1 % [-0.1, 0.3]. New queries are ranked no better for it:
NDCG@10 0.727 and 0.897 with both. In one run of the default the NDCG@10 of sampled orders rises from 0.58 to 0.68
(first and last ten of 40 steps), the overlap from 0.57 to 0.70; 6 % of greedy orders have every relevant passage on
top.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.penalties.kl import KL
from posttrain.components.rewards.reranked import Reranked
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, several_updates, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.passages import passages

PARENT: Final = "grpo"
SETTING: Final = "passages"
PAPER: Final = "arXiv:2508.07050"
ROWS: Final = (162,)
CHANGES: Final = ("learner.minibatches",)


def reasonrank(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: rewards of a whole order, two updates a batch, near the model before reinforcement."""
    recipe = grpo(keep_verifier(recipe or passages()))
    stage = rl_of(recipe)
    reward = stage.reward
    stage = replace(
        stage,
        reward=replace(reward, recall=0.2, overlap=0.1) if isinstance(reward, Reranked) else Reranked(),
        filters=every_group(stage),
        penalties={**stage.penalties, "kl": KL(coefficient=0.001)},
        learner=several_updates(stage.learner, minibatches=2),
    )
    recipe = with_models(replace(recipe, name="reasonrank"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
