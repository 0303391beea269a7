"""RLDP: DP-SGD whose bounds and noise a soft actor-critic chooses, which learns during the training that it steers.

Source: Khadangi et al. 2025, arXiv:2507.22565. Adapters are clipped by pairs (A, B); after each interval the
actor-critic chooses a bound for each pair and the noise multiplier; training stops at the budget.

    posttrain run rldp tasks=records.jsonl epsilon=4      # columns: prompt, completion; stops at the budget
    posttrain run rldp privacy.controller=quantile        # adaptive clipping; `fixed` is DP-SGD, bit for bit
    posttrain diagnose exposure RUN tasks=records         # bits of each canary that the model shows

Everything that the controller reads is released with noise and counted in the ledger, so that the claim of DP-SGD holds
for its choices too: shares of records within their bounds and the loss. Since settings depend on earlier releases, the
budget is counted at one Renyi order that is fixed beforehand.

Differs: known from the README of the release and from summaries; its code could not be opened. How the paper counts
what the controller reads is not known. Intervals of 10 steps instead of 112, epsilon 4 instead of 0.5, and a
learning rate for the bundled model.

Measured here: records with 20 canaries, epsilon 4, delta 1e-5, five seeds; held-out loss in nats per token and mean
exposure in bits (unseen: 1.44): SFT 0.10 and 2.46, DP-SGD 1.30 and 1.43, adaptive clipping 1.30 and 1.41, RLDP 1.28 and
1.51, which stops after 101 of 111 steps; with a bound of 10 in place of 0.1 2.12 and 1.57. So canaries are not shown at
epsilon 4, controllers are level with a well chosen bound (RLDP -0.02 nats [-0.22, +0.17]), and a badly chosen one costs
0.81 [0.32, 1.31] (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.controllers.actor_critic import ActorCritic
from posttrain.methods.safety.dp_sgd import dp_sgd
from posttrain.recipes.changes import sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.training.privacy import Privacy

PARENT: Final = "dp_sgd"
SETTING: Final = "private_records"
PAPER: Final = "arXiv:2507.22565"
ROWS: Final = (74,)


def rldp(recipe: Recipe | None = None) -> Recipe:
    """A change to DP-SGD: a controller that learns."""
    recipe = dp_sgd(recipe)
    stage = sft_of(recipe)
    privacy = replace(stage.learner.privacy or Privacy(), controller=ActorCritic())
    learner = replace(stage.learner, privacy=privacy)
    return with_stage(replace(recipe, name="rldp"), replace(stage, learner=learner))
