"""Explained pairs: sums of four or five numbers after a warm-up on explanations of given answers, without rewards.

As `explained_sums`, for methods that learn from pairs.
"""

from dataclasses import replace

from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.components.selections.sampled import Sampled
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.explained_sums import explained_sums
from posttrain.settings.sum_pairs import sum_pairs
from posttrain.stages.preference import PreferenceTraining


def explained_pairs() -> Recipe:
    """The warm-up, then one epoch over pairs of a correct and an incorrect rollout of the model itself."""
    recipe = explained_sums()
    rewarded = rl_of(recipe)
    given = sum_pairs().stages["dpo"]
    pairs = PreferenceTraining(
        loss=DPO(),
        reducer=Sequences(),
        learner=given.learner,  # type: ignore[attr-defined]
        selection=Sampled(reward=Match()),
    )
    stages = {name: stage for name, stage in recipe.stages.items() if stage is not rewarded}
    evaluation = replace(recipe.evaluation, verifier=Match())
    changed = replace(recipe, name="explained_pairs", stages={**stages, "dpo": pairs}, evaluation=evaluation)
    return with_models(changed, {"reference": Model(source="role:policy")})
