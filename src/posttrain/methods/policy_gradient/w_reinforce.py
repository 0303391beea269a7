"""W-REINFORCE: REINFORCE without a baseline, with incorrect rollouts weighted ten times as much as correct ones.

Source: Zhu et al. 2025, arXiv:2506.01347, section 5, and its released code: +0.1 for a correct rollout and -1 for an
incorrect one, for every token, no baseline, no normalization within the group; clip 0.2, four updates per batch, mean
over tokens, no KL, and an entropy bonus of 0.001, the release's default. Its two halves, positive and negative sample
reinforcement:

    posttrain run w_reinforce 'filters={only: {kind: outcome, keep: right}}' advantage.positive=1    # PSR
    posttrain run w_reinforce 'filters={only: {kind: outcome, keep: wrong}}'                         # NSR

and `advantage.positive=1` is REINFORCE. On-policy all four have the same expected gradient for a task, up to scale:
their rewards differ by a constant. They differ through sampling, clipping and the number of tokens in the mean.

`CHANGES`: the paper weights signed rewards, and the clip acts only with several updates per batch.

Differs: nothing known; the paper has 1024 tasks x 8 per step and a learning rate of 1e-6.

Measured here: ten steps of 16 x 8 rollouts (5 seeds): pass@1 58.6 %, GRPO 61.9 %, -3.4 points [-4.8, -1.9]; pass@8 93.2
% and 92.8 %, +0.4 points [-2.7, +3.5]; entropy higher by 0.009 nats [0.006, 0.012]. NSR against PSR: pass@1 -4.1 points
[-6.7, -1.5], pass@8 +0.4 [-2.7, +3.5], entropy +0.013 nats [0.008, 0.018]: NSR learns more slowly and keeps more
entropy, with no gain at eight samples that five seeds can show. On a bandit of fifty arms, at 80 % correct pulls, 6.9
of ten correct arms are still sampled with NSR and 3.7 with PSR from a nearly uniform start, 1.8 and 1.7 from a skewed
one (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.fixed_baseline import FixedBaseline
from posttrain.components.penalties.entropy import Entropy
from posttrain.methods.policy_gradient.topr import signed
from posttrain.recipes.changes import every_group, rl_of, several_updates, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2506.01347"
ROWS: Final = (262,)
CHANGES: Final = ("reward", "learner.minibatches")


def w_reinforce(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: raw signed rewards, positive ones weighted by 0.1; all groups kept."""
    recipe = recipe or arithmetic()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        reward=signed(stage.reward),
        filters=every_group(stage),
        advantage=FixedBaseline(positive=0.1),
        penalties={**stage.penalties, "entropy": Entropy(coefficient=0.001)},
        learner=several_updates(stage.learner, minibatches=4),
    )
    return with_stage(replace(recipe, name="w_reinforce"), stage)
