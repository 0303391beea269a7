"""What methods that infer a reward from data share: the reward model, its stage, and the same reinforcement."""

from dataclasses import replace

from posttrain.components.rewards.reward_model import RewardModel
from posttrain.models import Model
from posttrain.recipes.changes import keep_verifier, rl_of, with_models, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.stages import Stage


def rewarded_by(recipe: Recipe, learning: Stage, *, name: str) -> Recipe:
    """The recipe with a stage that trains the role ``reward`` first, whose score is the reward; nothing else changes.

    The present reward becomes the verifier of held-out answers, if there is none.
    """
    recipe = keep_verifier(recipe)
    model = Model(source="role:policy", head="reward", trained=True)
    recipe = with_models(replace(recipe, name=name), {"reward": model})
    changed = replace(rl_of(recipe), reward=RewardModel())
    return with_stages_before(with_stage(recipe, changed), {"inferred": learning}, changed)
