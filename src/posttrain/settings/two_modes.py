"""Two modes: a new flow imitates points around two modes in the plane, and is rewarded for one of the modes.

The reward is 1 for an end point near the rewarded mode (`posttrain.components.rewards.in_region`). The steps of the
flow have noise of a constant standard deviation, so that each has a density.
"""

from dataclasses import replace

from posttrain.components.noises.constant import Constant
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.in_region import InRegion
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.flow import Flow
from posttrain.components.tasks.two_modes import TwoModes
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def two_modes() -> Recipe:
    """A flow of 14 steps, trained by flow matching first; 24 groups of 24 points per step."""
    recipe = arithmetic()
    matching = replace(
        sft_of(demonstrations()),
        batch=64,
        epochs=20.0,
        max_steps=600,
        learner=Learning(optimizer=AdamW(lr=2e-3)),
    )
    stage = replace(
        rl_of(recipe),
        steps=50,
        prompts=24,
        rollout=Independent(n=24, sampling=Sampling(max_tokens=64)),
        reward=InRegion(),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
    )
    return replace(
        recipe,
        name="two_modes",
        models={"policy": Model(source="new", shape=Flow(steps=14, noise=Constant()), trained=True)},
        tasks=TwoModes(size=3000),
        stages={"matching": matching, "rl": stage},
        evaluation=Evaluation(holdout=500),
    )
