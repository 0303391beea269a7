"""Reward model: a model learns to score completions from preference pairs, and nothing else is trained.

The pairs are generated: a worked solution is preferred to the result without steps. On pairs of your own:

    posttrain run reward_model tasks=pairs.jsonl model=FOLDER    # columns: prompt, chosen, rejected
    posttrain eval --reward runs/NAME pairs=held_out.jsonl

The model that is trained is a copy of the policy with a reward head. What the run leaves is a judge by its name
(``posttrain judge runs/NAME``, ``posttrain audit --judge runs/NAME``), and a reward model of a policy.
"""

from dataclasses import replace

from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.tree import Recipe
from posttrain.settings.reward_model_sums import reward_model_sums
from posttrain.stages.reward_model import RewardModelTraining


def reward_model() -> Recipe:
    """60 steps of 32 pairs."""
    recipe = reward_model_sums()
    stage = recipe.stages["reward_model"]
    assert isinstance(stage, RewardModelTraining), "it is that of the setting"
    return replace(
        recipe,
        name="reward_model",
        stages={"reward_model": replace(stage, max_steps=60)},
        evaluation=Evaluation(by="none"),
    )
