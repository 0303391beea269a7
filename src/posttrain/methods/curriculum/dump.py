"""DUMP: a curriculum over sources of tasks by an upper confidence bound of their mean absolute advantage.

Source: Wang et al. 2025, arXiv:2504.09710, section 3 and Algorithm 1: the newest 300 absolute advantages of each
source, an upper confidence bound, and a softmax with temperature 0.1. KL to the initial policy with weight 0.001, as in
its runs, which filter nothing.

Data: tasks with a column ``domain`` (or the columns that `curriculum.features` names), with few values.

Differs: in its default setting, sums of two to nine numbers are the eight sources. The learning rate and the number of
rollouts are those of the setting.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.curricula.ucb import Ucb
from posttrain.components.penalties.kl import KL
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.uneven_sums import uneven_sums

PARENT: Final = "grpo"
SETTING: Final = "uneven_sums"
PAPER: Final = "arXiv:2504.09710"
ROWS: Final = (120,)


def dump(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the source of each task is drawn by the bound of its advantages; a KL term, no filter."""
    recipe = grpo(recipe or uneven_sums())
    recipe = with_models(recipe, {"reference": Model(source="role:policy")})
    stage = replace(rl_of(recipe), curriculum=Ucb(), filters={}, penalties={"kl": KL(coefficient=0.001)})
    return with_stage(replace(recipe, name="dump"), stage)
