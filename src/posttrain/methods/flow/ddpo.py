"""DDPO: policy gradient on the steps of a diffusion or a flow, each a choice with a likelihood of its own.

Source: Black et al. 2023, arXiv:2305.13301, section 4.3 (DDPO-IS: importance weights per step, clipped), with the SDE
of Flow-GRPO, Liu et al. 2025, arXiv:2505.05470, which makes the steps of a flow random, and its group-normalised
rewards.

Differs: a flow in the plane that first learns, by imitation, points around two modes; the reward is to be near one.
The start of a chain is a token too; it has the same density under all weights, so that its ratio is 1.
"""

from dataclasses import replace

from posttrain.components.noises.sde import SDE
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.in_region import InRegion
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.flow import Flow
from posttrain.components.tasks.two_modes import TwoModes
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, sft_of
from posttrain.recipe.tree import Recipe
from posttrain.training.settings import Learning


def ddpo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the policy is a flow of 14 steps, made ready by flow matching; a step is a token."""
    recipe = recipe or grpo()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        steps=50,
        prompts=24,
        rollout=Independent(n=24, sampling=Sampling(max_tokens=64)),
        reward=InRegion(),
        learner=replace(stage.learner, optimizer=AdamW(lr=3e-4)),
    )
    learner = Learning(optimizer=AdamW(lr=2e-3))
    matching = replace(sft_of(sft()), batch=64, epochs=20.0, max_steps=600, learner=learner)
    return replace(
        recipe,
        name="ddpo",
        models={"policy": Model(source="new", shape=Flow(steps=14, noise=SDE()), trained=True)},
        tasks=TwoModes(size=3000),
        stages={"matching": matching, "rl": stage},
        evaluation=Evaluation(holdout=500),
    )
