"""Tastes: users with opposite tastes, a reward model that infers them from pairs, and reinforcement by its score.

The policy imitates replies that nobody chose. Held-out replies are correct that have the word that the user likes, and
not the other one: one in eight of the imitated ones, which are no right answers, so
the audit of the reward model only measures.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.rewards.rubric import Rubric
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.personal import Personal
from posttrain.components.tasks.tastes import Tastes
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.reward_model import RewardModelTraining
from posttrain.stages.rl.reward_audit import MEASURED
from posttrain.training.settings import Learning


def tastes() -> Recipe:
    """30 steps of imitation, 56 for the reward model, then 40 of 8 prompts with 8 replies each, near the first one."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    imitation = replace(imitation, max_steps=30, learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3)))
    rewarding = RewardModelTraining(reducer=Sequences(), epochs=2.0, learner=Learning(optimizer=AdamW(lr=1e-3)))
    stage = replace(
        rl_of(recipe),
        steps=40,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=20)),
        reward=RewardModel(),
        penalties={"kl": KL(coefficient=0.1)},
        learner=Learning(optimizer=AdamW(lr=2e-4)),
        audit=MEASURED,
    )
    models = {
        "reward": Model(source="role:policy", head="reward", trained=True),
        "reference": Model(source="role:policy"),
    }
    recipe = with_models(recipe, models)
    return replace(
        recipe,
        name="tastes",
        tasks=Personal(tasks=Tastes()),
        stages={"sft": imitation, "reward_model": rewarding, "rl": stage},
        evaluation=Evaluation(holdout=100, verifier=Rubric()),
    )
