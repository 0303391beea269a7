"""SALSA: PPO whose KL reference is a model soup, the weight average of two SFT models.

Source: Chegini et al. 2024, arXiv:2411.01798: theta_soup = alpha theta_SFT1 + (1 - alpha) theta_SFT2 of two SFT runs
from one base with different seeds, alpha 1/2. The policy starts from SFT1. Nothing else differs from PPO, and
``soup.method.weights=[1, 0]`` is PPO with the initial policy as the reference.

    posttrain run salsa tasks=mine.jsonl model=FOLDER    # columns: prompt, answer, completion

`CHANGES`: the soup replaces a reference of the setting.

Differs: the paper's coefficient, learning rates and batch were not found. The two SFT runs share their tasks and differ
in order, which follows from the stage's name. Compare at several coefficients: the policy does not start at the soup,
so the same coefficient regularizes it differently.

Measured here: against the initial policy as the reference (12 steps, coefficient 0.05, 5 seeds): held-out accuracy 72.8
% against 73.2 %, -0.4 points [-6.1, +5.3]; reward over the last five steps +0.010 [-0.027, +0.047]
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.merges.soup import Soup
from posttrain.methods.policy_gradient.ppo import as_ppo
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.merge import Merging

PARENT: Final = "ppo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2411.01798"
ROWS: Final = (272,)
CHANGES: Final = ("models.reference",)


def salsa(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: two SFT models are trained first, and their average is the reference."""
    recipe = with_imitation(as_ppo(recipe or arithmetic()))
    second = replace(sft_of(recipe), role="second")
    soup = Merging(role="reference", of=("policy", "second"), method=Soup(weights=(0.5, 0.5)))
    recipe = with_stages_before(recipe, {"soup": soup}, rl_of(recipe))
    roles = {"second": Model(source="role:policy", trained=True), "reference": Model(source="made")}
    return replace(
        recipe,
        name="salsa",
        models={**recipe.models, **roles},
        stages={"second": second, **recipe.stages},  # before the policy is trained: both start from the base
    )
