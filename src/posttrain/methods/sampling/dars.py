"""DARS: a first look at each task, then more attempts at the harder ones, so that they are not learned from least.

Source: Yang et al. 2025 (Depth-Breadth Synergy), arXiv:2508.13755, and its released code: 8 attempts, then up to 32 in
all so that a hard task's advantages come to as much as those of a task solved half of the time; advantages without
deviation, tokens summed and divided by a constant, clip 0.2, entropy bonus 0.001, no KL. Groups that are all right or
all wrong are left out. `rollout.schedule=hard rollout.n_max=64` asks for more the harder a task is. Breadth (DARS-B):
all of a step is one minibatch, gone over twice, `learner.epochs=2`.

Differs: the entropy bonus is summed as the loss is. The loss is averaged over the sequences of the step, whatever their
number.

Measured here: against Dr. GRPO with groups of 16 at as many sampled tokens, and so fewer tasks a step (10 steps, sums
of four or five numbers, 5 seeds): groups of equal rewards 28.7 % against 39.8 %, -11.1 points [-19.6, -2.5]; pass@16
58.4 % against 59.0 %, -0.6 points [-5.1, +3.9]; held-out accuracy 24.0 % against 31.0 %, -7.0 points [-13.8, -0.2].
With the other schedule pass@16 differs as little, and accuracy is lower by 9.0 points [-16.6, -1.4]
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.penalties.entropy import Entropy
from posttrain.components.rollouts.two_stage import TwoStage
from posttrain.methods.policy_gradient.dr_grpo import dr_grpo
from posttrain.recipes.changes import sampled_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

PARENT: Final = "dr_grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2508.13755"
ROWS: Final = (239,)


def dars(recipe: Recipe | None = None) -> Recipe:
    """A change to Dr. GRPO: two stages of sampling, and a small entropy bonus."""
    recipe = dr_grpo(recipe or arithmetic())
    stage = sampled_of(recipe)
    stage = replace(
        stage,
        rollout=TwoStage(sampling=sampling_of(stage)),
        penalties={**stage.penalties, "entropy": Entropy(coefficient=0.001)},
    )
    return with_stage(replace(recipe, name="dars"), stage)
