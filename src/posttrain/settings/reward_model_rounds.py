"""Reward model rounds: the setting `reward_model_sums` in three rounds of many prompts, with several updates each."""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.schedules.cosine import Cosine
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.reward_model_sums import reward_model_sums
from posttrain.training.settings import Learning


def reward_model_rounds() -> Recipe:
    """Three steps of 128 prompts with 8 completions each, and two epochs of 8 updates per step."""
    recipe = replace(reward_model_sums(), name="reward_model_rounds")
    learner = Learning(optimizer=AdamW(lr=3e-4), schedule=Cosine(), epochs=2, minibatches=8)
    return with_stage(recipe, replace(rl_of(recipe), steps=3, prompts=128, learner=learner))
