"""DDPO: policy gradient on the denoising steps of a diffusion or flow model, each an action with a likelihood.

Source: Black et al. 2023, arXiv:2305.13301, section 4.3 (DDPO-IS: importance weights per step, clipped), with the SDE
of Flow-GRPO, Liu et al. 2025, arXiv:2505.05470, which makes the steps of a flow stochastic, and its group-normalized
rewards.

    posttrain run ddpo tasks=mine.jsonl reward=mine.py:score    # columns: prompt, completion (a point: 0.3 -1)

`CHANGES`: a new flow gets noise in its steps. A model that is loaded from a folder keeps its own.

Differs: the default setting is a flow in the plane. The start of a chain is a token too. It has the same density under
all weights, so its ratio is 1.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.noises.sde import SDE
from posttrain.components.shapes.flow import Flow
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.recipes.tree import Recipe
from posttrain.settings.two_modes import two_modes

PARENT: Final = "grpo"
SETTING: Final = "two_modes"
PAPER: Final = "arXiv:2305.13301"
ROWS: Final = ()
CHANGES: Final = ("models.policy.shape.noise",)
INHERITED: Final = {"penalties": "none; Flow-GRPO has a KL to the first model"}


def ddpo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the steps of a flow follow an SDE, and each is a token with a ratio."""
    recipe = with_rl(recipe or two_modes())
    policy = recipe.models["policy"]
    if isinstance(policy.shape, Flow):
        policy = replace(policy, shape=replace(policy.shape, noise=SDE()))
    return replace(recipe, name="ddpo", models={**recipe.models, "policy": policy})
