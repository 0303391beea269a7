"""SAPO: GRPO of several nodes that share the texts of their answers, and learn from those of others beside their own.

Source: arXiv:2509.08721, and the code that it was run with (gensyn-ai/genrl, trainer/grpo_trainer.py). Each node has a
model, an optimizer and a tokenizer of its own. It answers questions, shares question, gold and texts, and learns from I
groups of its own and J of others, which it tokenizes and scores itself (filter ``exchange``; `exchange.rule=top` is
the demonstration's choice). Rewards are compared in each group, by the unbiased std; the loss is the mean over all
tokens of the batch, those of groups without an advantage too, clipped at 0.2 and 0.28, without KL. With one update the
ratio is 1, also for text of others: a plain policy gradient without a correction.

    posttrain run sapo tasks=mine.jsonl filters.exchange.own=6 filters.exchange.external=2
    posttrain run sapo models.node2.source=FOLDER    # another model with a tokenizer of its own
    # columns: prompt, answer

Differs: nodes work in step in one process, where the swarm is asynchronous and its bus may be late or empty; four
nodes, where the paper has eight. Each question of a step is answered by one node.

Measured here, with tables in place of models, four nodes, 300 rounds, five seeds (docs/experiments.md): the summed
reward is 192.2 [183.7, 200.7] with 8 groups of its own and none of others', 224.8 [221.7, 228.0] with 4 and 4, and
231.3 [228.6, 234.0] with 2 and 6, since a table does not forget one question over another. Two nodes that share random
answers change nothing with the filter, 224.8 [221.2, 228.5]; without it the sum is 203.9 [199.4, 208.4], and 197.6
[192.8, 202.5] with them. Where the questions of a node share a matrix, 4 and 4 are best, as in the paper: 15.0 [9.7,
20.3] above nodes that learn alone, seed by seed, and 2 and 6 8.3 [2.3, 14.4], whose reward moves twice as much from
round to round, 0.82 [0.75, 0.88] against 0.38 [0.33, 0.44] in thousandths. The default run, once: 19.0 % of
200 held-out sums before, 74.5 % after 100 steps.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.filters.exchange import Exchange
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.rollouts.swarm import Swarm
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, rollouts_of, sampling_of, with_models, with_stage
from posttrain.recipes.tree import Recipe

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2509.08721"
ROWS: Final = (103,)
NODES: Final = ("policy", "node2", "node3", "node4")


def sapo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: four nodes that share texts."""
    recipe = grpo(recipe)
    stage = rl_of(recipe)
    stage = replace(
        stage,
        rollout=Swarm(n=rollouts_of(stage), nodes=NODES, sampling=sampling_of(stage)),
        advantage=GroupMean(epsilon=1e-8),
        objective=PPOClip(clip_low=0.2, clip_high=0.28),
        filters={"exchange": Exchange()},
    )
    others = {role: Model(source="role:policy", trained=True) for role in NODES[1:]}
    return with_stage(with_models(replace(recipe, name="sapo"), others), stage)
