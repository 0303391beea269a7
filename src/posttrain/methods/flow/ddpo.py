"""DDPO: policy gradient on the steps of a diffusion or a flow, each a choice with a likelihood of its own.

Source: Black et al. 2023, arXiv:2305.13301, section 4.3 (DDPO-IS: importance weights per step, clipped), with the SDE
of Flow-GRPO, Liu et al. 2025, arXiv:2505.05470, which makes the steps of a flow random, and its group-normalised
rewards.

    posttrain run ddpo tasks=mine.jsonl reward=mine.py:score    # columns: prompt, completion (a point: 0.3 -1)

`CHANGES`: the noise in the steps of a new flow is what makes them random. A model that is read from a folder keeps its
own.

Differs: the default setting is a flow in the plane. The start of a chain is a token too; it has the same density under
all weights, so that its ratio is 1.
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
    """A change to GRPO, which has a ratio a token: the steps of a flow, each a token, follow an SDE."""
    recipe = with_rl(recipe or two_modes())
    policy = recipe.models["policy"]
    if isinstance(policy.shape, Flow):
        policy = replace(policy, shape=replace(policy.shape, noise=SDE()))
    return replace(recipe, name="ddpo", models={**recipe.models, "policy": policy})
