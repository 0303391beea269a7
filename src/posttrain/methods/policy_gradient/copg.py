"""CoPG: offline policy gradient on pairs of rated completions, each the baseline of the other.

Source: Flet-Berliac et al. 2024, arXiv:2406.19185: fixed pairs of rated completions, beta 0.06, and no sampling, no
importance weights, no clipping. The reference is the initial policy.

For the same loss on fresh samples, as in Command A (Cohere 2025, arXiv:2504.00698): `setting=arithmetic`.

Differs: the data is generated: correct worked solutions of sums (+1), and solutions with a slip (-1). Sizes and
learning rate are for the bundled model. The paper has two epochs at 1e-6 in batches of 128.

Measured here: five seeds, one epoch over 640 pairs: held-out accuracy rises from 21 % to 40.2 %, as with DPO's loss on
the same pairs. The plain policy gradient reaches 37.4 % (CoPG is higher by 2.8 points [-2.0, 7.6]), and 58.8 % with
means over tokens instead of sums, which makes the model write a worked solution in 91 % of its answers instead of 45 %.
The bias that CoPG is meant to fix is not visible here (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.objectives.copg import CoPG
from posttrain.components.reducers.sequences import Sequences
from posttrain.methods.policy_gradient.rloo import rloo
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.rated_pairs import rated_pairs

PARENT: Final = "rloo"
SETTING: Final = "rated_pairs"
PAPER: Final = "arXiv:2406.19185"
ROWS: Final = (212,)


def copg(recipe: Recipe | None = None) -> Recipe:
    """A change to RLOO: a loss on the reward difference of each pair, with the KL inside the loss."""
    recipe = rloo(recipe or rated_pairs())
    stage = rl_of(recipe)
    stage = replace(
        stage,
        advantage=GroupMean(scale="none"),
        objective=CoPG(),
        reducer=Sequences(),
        penalties={name: penalty for name, penalty in stage.penalties.items() if name != "kl"},
    )
    return with_stage(replace(recipe, name="copg"), stage)
