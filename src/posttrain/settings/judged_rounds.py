"""Judged rounds: judged sums in three rounds of many prompts, each learned from in several updates."""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.schedules.cosine import Cosine
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.judged_sums import judged_sums
from posttrain.training.settings import Learning


def judged_rounds() -> Recipe:
    """Three steps of 128 prompts with 8 completions each, and two passes over each of them in 8 updates."""
    recipe = replace(judged_sums(), name="judged_rounds")
    learner = Learning(optimizer=AdamW(lr=3e-4), schedule=Cosine(), epochs=2, minibatches=8)
    return with_stage(recipe, replace(rl_of(recipe), steps=3, prompts=128, learner=learner))
