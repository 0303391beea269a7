"""Judged sums: arithmetic without a rule for right and wrong: a reward model is made of preferences, and judges.

The preferences are generated: a sum worked out rather than answered at once.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.tasks.workings import Workings
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.reward_model import RewardModelTraining
from posttrain.training.settings import Learning


def judged_sums() -> Recipe:
    """20 steps for the reward model, then 20 of reinforcement; held-out answers are right or wrong."""
    recipe = arithmetic()
    judge = RewardModelTraining(reducer=Sequences(), max_steps=20, learner=Learning(optimizer=AdamW(lr=3e-4)))
    stage = replace(rl_of(recipe), steps=20, reward=RewardModel())
    recipe = with_models(recipe, {"reward": Model(source="role:policy", head="reward", trained=True)})
    return replace(
        recipe,
        name="judged_sums",
        tasks=Workings(size=2000, rejected="unworked"),
        stages={"reward_model": judge, "rl": stage},
        evaluation=Evaluation(verifier=Match()),
    )
