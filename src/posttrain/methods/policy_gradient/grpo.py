"""GRPO: compare attempts at one task with each other, without a critic.

Source: Shao et al. 2024 (DeepSeekMath), arXiv:2402.03300, section 4.1: 64 attempts a task, group-normalised rewards,
clip 0.2, one update a batch, KL to the reference in the loss.

Differs: tokens are averaged over the whole step (DAPO, arXiv:2503.14476, section 3.3), and there is no KL term, as in
most later work; `penalties.kl.kind=kl` with a reference model brings it back. Sizes and learning rate are
for the bundled model; models of billions of parameters take a rate near 1e-6.
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
from posttrain.recipe.tree import Recipe
from posttrain.stages.rl import RL
from posttrain.training.settings import Learning


def grpo() -> Recipe:
    """The root of the reinforcement recipes: complete, and runnable as it is."""
    return Recipe(
        name="grpo",
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
