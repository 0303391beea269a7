"""Verilog in one round: the Verilog setting with a single round of sampling and several updates."""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rollouts.independent import Independent
from posttrain.engines import Sampling
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.verilog import verilog


def verilog_round() -> Recipe:
    """One step of 160 tasks with 8 rollouts each at temperature 1, in 10 updates."""
    recipe = verilog()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        steps=1,
        prompts=160,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=64)),
        learner=replace(stage.learner, optimizer=AdamW(lr=2e-5), minibatches=10),
    )
    return with_stage(replace(recipe, name="verilog_round"), stage)
