"""RepExp: GRPO with a bonus for rollouts that differ in hidden states, by which answers are chosen at inference too.

Source: arXiv:2510.11686, sections 3 and 4.1, and its recipe (verl-project/verl-recipe at 48ea0a79, rep_exp). The mean
of a frozen model's last hidden states over a rollout, projected to 32 numbers, less the group's mean; the bonus is its
leverage in the group, times beta 0.01, added to the reward before GRPO's normalization. Groups without a correct
rollout have no bonus; every group is kept, since those that are all correct have an advantage by the bonus.

    posttrain run rep_exp tasks=mine.jsonl model=FOLDER    # columns: prompt, answer
    posttrain diagnose coreset runs/rep_exp-1 tasks=mine.jsonl verifier=match pool=64    # at inference

128 numbers: `models.reference.projection=128`. Without the bonus it is GRPO: `advantage.beta=0`. Bonuses without the
rollout's own states, or scaled: `advantage.leave_one_out=true advantage.scale=std`.

Differs: the random projection is fixed for the run, not drawn in each step. Rollouts of a task are the setting's.

Measured here: 5 seeds (`docs/experiments/coresets.py`): a correct answer that is 1 % of 512 in ten clusters is found
after 6.4 calls [5.5, 7.3] of a verifier in the order of the coreset, after 85.5 in random order. A table with four
correct modes: pass@32 of one of them .606 [.580, .632] with beta .01, .615 [.597, .633] with .1, .303 [.288, .318]
without; two modes stay instead of one; pass@1 .971, .972 and .991 (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.explored import Explored
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2510.11686"
ROWS: Final = (105,)

WIDTH: Final = 32


def rep_exp(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: differing hidden states are rewarded within a group; every group is kept."""
    recipe = grpo(recipe or arithmetic())
    stage = rl_of(recipe)
    stage = replace(stage, advantage=Explored(advantage=stage.advantage), filters=every_group(stage))
    recipe = with_models(replace(recipe, name="rep_exp"), {"reference": Model(source="role:policy", projection=WIDTH)})
    return with_stage(recipe, stage)
