"""Arithmetic: the bundled model solves sums of three or four numbers, and is rewarded for the correct answer.

Sizes and learning rate are for that model of 800,000 weights; with a larger model they follow it
(`posttrain.runs.fitting`).
"""

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.curricula.uniform import Uniform
from posttrain.components.filters.zero_variance import ZeroVariance
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.tokens import Tokens
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines import Sampling
from posttrain.models import Model
from posttrain.recipes.tree import Recipe
from posttrain.stages.rl import RL
from posttrain.training.settings import Learning


def arithmetic() -> Recipe:
    """The base of the reinforcement settings: complete, and runnable as is."""
    return Recipe(
        name="arithmetic",
        models={"policy": Model(source="pebble", trained=True)},
        tasks=Arithmetic(size=2000, terms=(3, 4)),
        stages={
            "rl": RL(
                steps=100,
                prompts=16,
                curriculum=Uniform(),
                rollout=Independent(n=8, sampling=Sampling(max_tokens=64)),
                reward=Match(),
                filters={"zero_variance": ZeroVariance()},
                advantage=GroupMean(),
                objective=PPOClip(),
                reducer=Tokens(),
                learner=Learning(optimizer=AdamW(lr=1e-4)),
            )
        },
    )
