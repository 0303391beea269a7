"""Lite PPO: GRPO with advantages divided by the reward std of the batch instead of the group's.

Source: Liu et al. 2025 ("Tricks or traps?"), arXiv:2508.08221: reward minus the mean of the group, over the std of the
raw rewards of the batch; clip 0.2, the mean over all tokens of the step; no critic, no KL, no entropy bonus, no filter
on groups or answers. The paper's comparisons: `advantage.center` and `advantage.scale` are ``group``, ``batch`` or
``none`` each, `reducer=sequences` averages over answers, and `objective.clip_high=0.28` clips higher.

Differs: the normalizer is that of the authors' framework ROLL and of the trl library, which both use the raw rewards
(`advantage.scale=within` uses the centered ones). Sampling is at temperature 1, where trl's page has 0.99 and truncates
the distribution.

Measured here: against GRPO that keeps all groups too (sums of two to four numbers, 16 steps of 16 x 8, 5 seeds):
held-out accuracy 85.2 % against 85.8 %, -0.6 points [-1.7, +0.5]: no difference (docs/experiments.md). With a linear
policy on contextual bandits, half of which are rewarded nearly always (tests/methods/test_lite_ppo.py, 8 seeds),
accuracy on the other half is 96.2 % against 94.1 %, +2.2 points [+1.3, +3.0].
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.recipes.changes import every_group, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2508.08221"
ROWS: Final = (230,)


def lite_ppo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: advantages divided by the std of the batch, and all groups kept."""
    recipe = recipe or arithmetic()
    stage = rl_of(recipe)
    stage = replace(stage, filters=every_group(stage), advantage=GroupMean(scale="batch"))
    return with_stage(replace(recipe, name="lite_ppo"), stage)
