"""VAS: half of each step's tasks are drawn by the variance of their outcomes, which is measured every 35 steps.

Source: Variance-Aware Sampling of MMR1, Leng et al. 2025, arXiv:2509.21268, sections 3 and 4: score 0.8 P (1 - P) + 0.2
diversity, half of a step by score with replacement, half uniform, measured anew every 35 steps on all tasks. KL to the
initial policy with weight 0.01, as in the released example; nothing is filtered.

Data: any tasks with a reward. Each measurement samples every task as often as in training (`curriculum.n`), and that
counts: ``sampled_tokens`` includes ``probe_tokens``.

Differs: the paper measures with 32 rollouts of each task and trains large data sets of text and images; here a
measurement has the setting's 8, of text. The released example samples at temperature 0.6; here it is the setting's.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.curricula.variance import Variance
from posttrain.components.penalties.kl import KL
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.uneven_sums import uneven_sums

PARENT: Final = "grpo"
SETTING: Final = "uneven_sums"
PAPER: Final = "arXiv:2509.21268"
ROWS: Final = (130,)


def vas(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: half of the tasks are drawn by the measured variance of their outcomes; KL, no filter."""
    recipe = grpo(recipe or uneven_sums())
    recipe = with_models(recipe, {"reference": Model(source="role:policy")})
    stage = replace(rl_of(recipe), curriculum=Variance(), filters={}, penalties={"kl": KL(coefficient=0.01)})
    return with_stage(replace(recipe, name="vas"), stage)
