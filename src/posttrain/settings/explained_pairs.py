"""Explained pairs: sums of four or five numbers after a warm-up on explanations of given answers, without rewards.

As `explained_sums`, for methods that learn from pairs. At the rate of `sum_pairs`, 3e-4, explanations unmake the model
within 20 steps.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.components.schedules.constant import Constant
from posttrain.components.selections.sampled import Sampled
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.explained_sums import explained_sums
from posttrain.stages.preference import PreferenceTraining
from posttrain.training.settings import Learning


def explained_pairs() -> Recipe:
    """The warm-up, then one epoch over pairs of a correct and an incorrect rollout of the model itself."""
    recipe = explained_sums()
    rewarded = rl_of(recipe)
    pairs = PreferenceTraining(
        loss=DPO(),
        reducer=Sequences(),
        learner=Learning(optimizer=AdamW(lr=3e-5), schedule=Constant(warmup=0.1)),
        selection=Sampled(reward=Match()),
    )
    stages = {name: stage for name, stage in recipe.stages.items() if stage is not rewarded}
    evaluation = replace(recipe.evaluation, verifier=Match())
    changed = replace(recipe, name="explained_pairs", stages={**stages, "dpo": pairs}, evaluation=evaluation)
    return with_models(changed, {"reference": Model(source="role:policy")})
