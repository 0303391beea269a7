"""SEC: a self-evolving curriculum, a bandit over task categories rewarded by the mean absolute advantage.

Source: Self-Evolving Curriculum, Chen et al. 2025, arXiv:2505.14970, section 3: a bandit over categories, rewarded by
the mean absolute advantage and sampled from a Boltzmann distribution. Learning rate 0.5 and temperature 0.4 are those
of the released MATH runs.

Differs: in its default setting, sums of two to five numbers are the four categories. Groups of equal rewards are
dropped, as in the parent. A category that is not in the step keeps its value, as in the paper; in the release it decays
(`curriculum.unvisited=decay`).

Measured here, by the sampled tokens to 25 % of held-out sums of two to nine numbers (`posttrain compare grpo sec
setting=uneven_sums steps=24 --measure tokens_to:accuracy=0.25`, 8 seeds): 40,600 with uniform draws, 30,700 with SEC,
.76 [.69, .83] of them, and 28,700 at temperature 0.2, .71 [.65, .77]. At the end there is no difference: 29.9, 30.0 and
29.9 %, +0.1 points [-1.2, +1.3] and -0.1 [-1.2, +1.2]. So a curriculum is seen on the way, not at the end of a run: on
sums of two to five numbers (30 steps of 16 x 8, 5 seeds) SEC ends at 64.8 % against 65.4 %, -0.6 points [-3.6, +2.4]
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.curricula.bandit import Bandit
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.mixed_sums import mixed_sums

PARENT: Final = "grpo"
SETTING: Final = "mixed_sums"
PAPER: Final = "arXiv:2505.14970"
ROWS: Final = (61,)


def sec(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: tasks are sampled by category, more often where advantages are large."""
    recipe = recipe or mixed_sums()
    stage = replace(rl_of(recipe), curriculum=Bandit(rate=0.5, temperature=0.4))
    return with_stage(replace(recipe, name="sec"), stage)
