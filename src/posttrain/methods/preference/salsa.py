"""SALSA: PPO whose KL is taken to a soup, the average of two SFT models, instead of the one that the policy begins as.

Source: Chegini et al. 2024, arXiv:2411.01798: theta_soup = alpha theta_SFT1 + (1 - alpha) theta_SFT2 of two SFT runs
from one base with seeds of their own, alpha 1/2; the policy begins as SFT1. Nothing else differs from PPO, and
``soup.method.weights=[1, 0]`` is PPO with the first policy as the reference.

Differs: the paper's coefficient, learning rates and batch were not seen; sizes are for the bundled model. The two SFT
runs share their tasks and differ in order, which follows from the stage's name. Compare at several coefficients: since
the policy begins away from the soup, the same coefficient holds it less.

Measured here: against the first policy as the reference (12 steps, coefficient 0.05, 5 seeds): held-out accuracy 72.8 %
against 73.2 %, -0.4 points [-6.1, +5.3]; reward over the last five steps +0.010 [-0.027, +0.047]
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.merges.soup import Soup
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, sft_of
from posttrain.recipe.tree import Recipe
from posttrain.stages.merge import Merging

ROWS: Final = (272,)


def salsa(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: two models imitate first, and the average of them is the reference."""
    recipe = recipe or ppo()
    imitate = sft_of(sft())
    stages = {
        "second": replace(imitate, role="second"),  # before the policy is trained: both begin as the base
        "sft": imitate,
        "soup": Merging(role="reference", of=("policy", "second"), method=Soup(weights=(0.5, 0.5))),
        "rl": rl_of(recipe),
    }
    roles = {"second": Model(source="role:policy", trained=True), "reference": Model(source="made")}
    return replace(recipe, name="salsa", stages=stages, models={**recipe.models, **roles})
