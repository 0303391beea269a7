"""Reward model sums: arithmetic rewarded by a reward model that is trained on preferences first, not by a verifier.

The preferences are generated: a worked solution is preferred to the result without steps.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.reward_model import RewardModelTraining
from posttrain.training.settings import Learning


def reward_model_sums() -> Recipe:
    """20 steps for the reward model, then 20 of reinforcement; held-out answers are compared with the reference."""
    recipe = arithmetic()
    rewarding = RewardModelTraining(reducer=Sequences(), max_steps=20, learner=Learning(optimizer=AdamW(lr=3e-4)))
    stage = replace(rl_of(recipe), steps=20, reward=RewardModel())
    recipe = with_models(recipe, {"reward": Model(source="role:policy", head="reward", trained=True)})
    return replace(
        recipe,
        name="reward_model_sums",
        tasks=WorkedSolutions(size=2000, rejected="unworked"),
        stages={"reward_model": rewarding, "rl": stage},
        evaluation=Evaluation(verifier=Match()),
    )
