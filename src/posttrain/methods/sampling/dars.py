"""DARS: difficulty-adaptive rollout sampling, with additional rollouts for harder tasks to rebalance advantages.

Source: Yang et al. 2025 (Depth-Breadth Synergy), arXiv:2508.13755, and its released code: 8 rollouts, then up to 32 in
total, so that a hard task's cumulative advantage equals that of a task with a success rate of one half; advantages
without division by the std, tokens summed and divided by a constant, clip 0.2, entropy bonus 0.001, no KL. Groups that
are all correct or all incorrect are dropped. With `rollout.schedule=hard rollout.n_max=64` the number of rollouts grows
with difficulty. Breadth (DARS-B): the whole step is one minibatch, with two epochs, `learner.epochs=2`.

Differs: the entropy bonus is summed as the loss is. The loss is averaged over all sequences of the step.

Measured here: against Dr. GRPO with groups of 16 at as many sampled tokens, and so fewer tasks per step (10 steps, sums
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
