"""ASAF: imitation by a discriminator made of the policy and its own past, on demonstrations beside own rollouts.

Source: adversarial soft advantage fitting, Barde, Roy et al. 2020, arXiv:2006.13258, from general knowledge, as a part
of J. Roy's thesis on reward specification. Each group has 8 rollouts and a demonstration of its task; the policy is
trained to tell them apart by log p - log p_old (`objectives/asaf`), in four updates on a batch, and is the p_old of the
next one. Both kinds weigh the same. There is no reward in the loss; it is only recorded.

    posttrain run asaf tasks=mine.jsonl model=FOLDER    # columns: prompt, completion, answer (to evaluate)

Differs: a few updates stand for a discriminator that is trained until it no longer changes; the prompt is that of the
demonstration for both. `objective.per=token` compares single steps.

Measured here, five seeds of chains of two states and two actions, all trajectories enumerated
(`docs/experiments/reward_rates.py`): after 20 rounds the total variation to the demonstrator is 0.000, by sequences and
by tokens. One run of the default raises held-out sums from 17 % to 78 %, though no reward is learned from.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.asaf import ASAF
from posttrain.components.reducers.by_origin import ByOrigin
from posttrain.components.reducers.constant import Constant
from posttrain.components.rollouts.demonstrated import Demonstrated
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import (
    every_group,
    rollouts_of,
    sampled_of,
    sampling_of,
    several_updates,
    with_stage,
)
from posttrain.recipes.tree import Recipe
from posttrain.settings.short_arithmetic import short_arithmetic

PARENT: Final = "grpo"
SETTING: Final = "short_arithmetic"
PAPER: Final = "arXiv:2006.13258"
ROWS: Final = ()
CHANGES: Final = ("learner.epochs",)


def asaf(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: demonstrations in the groups, and a discriminator's loss in place of the reward's."""
    recipe = grpo(recipe or short_arithmetic())
    stage = sampled_of(recipe)
    stage = replace(
        stage,
        rollout=Demonstrated(n=rollouts_of(stage), sampling=sampling_of(stage)),
        filters=every_group(stage),
        objective=ASAF(),
        reducer=ByOrigin(sampled=Constant(length=1.0), demonstrated=Constant(length=1.0)),
        learner=several_updates(stage.learner, epochs=4),
    )
    return with_stage(replace(recipe, name="asaf"), stage)
