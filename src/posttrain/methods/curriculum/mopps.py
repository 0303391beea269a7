"""MoPPS: tasks near a success rate of one half, predicted by a posterior of each task, without a rollout more.

Source: Qu et al. 2025, arXiv:2507.04632, and its released code (github.com/thu-rllab/MoPPS): a Beta posterior of every
task's success rate, Thompson sampling of 16 candidates for each task of a step, of which those nearest to 0.5 are
trained on. Its runs clip at 0.2 and 0.28, add an entropy bonus of 0.001 and filter nothing: all groups update the
posterior and the policy.

Data: any tasks with a reward; the posterior is kept by the tasks' places in the data, which may not change when a run
is resumed.

Differs: with fewer candidates in the pool than are asked for, the whole pool is the candidates. The learning rate and
the number of rollouts are those of the setting.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.curricula.thompson import Thompson
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.penalties.entropy import Entropy
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.uneven_sums import uneven_sums

PARENT: Final = "grpo"
SETTING: Final = "uneven_sums"
PAPER: Final = "arXiv:2507.04632"
ROWS: Final = (4,)


def mopps(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the tasks of a step are those with a drawn success rate near one half; no filter."""
    recipe = grpo(recipe or uneven_sums())
    stage = replace(
        rl_of(recipe),
        curriculum=Thompson(),
        filters={},
        objective=PPOClip(clip_high=0.28),
        penalties={"entropy": Entropy(coefficient=0.001)},
    )
    return with_stage(replace(recipe, name="mopps"), stage)
