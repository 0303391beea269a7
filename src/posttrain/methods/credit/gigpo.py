"""GiGPO: agents of several turns, compared as whole attempts and turn by turn where they came to the same state.

Source: Feng et al. 2025, arXiv:2505.10978, with the settings of the released scripts: 8 attempts a task, 16 tasks a
step, omega 1, gamma 0.95 a turn, mean without deviation, 0.1 off for an invalid action, KL loss 0.01.

Differs: the world is a corridor and the model a new one of 200k weights, which first imitates random walks, to learn
what an action looks like. There is no KL term, and whole attempts count once each (see the advantage).

Measured here: omega 1 against 0 (15 steps, deviation scale, 5 seeds): solved while training 34.9 % against 34.6 %, +0.3
points [-0.0, +0.7]; the gradient is twice as long in the first step of the first seed, which Adam does not notice
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gigpo import GiGPO
from posttrain.components.environments.corridor import Corridor as CorridorWorld
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.corridor import Corridor
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, sft_of
from posttrain.recipe.tree import Recipe
from posttrain.training.settings import Learning

ROWS: Final = (267,)


def gigpo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: turns in a world, and credit for each of them."""
    recipe = recipe or grpo()
    world, tasks = CorridorWorld(), Corridor(size=400)
    walks = Played(tasks=tasks, environment=world, actions=("f", "s", "b"), turns=9)
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Turns(environment=world, n=8, max_turns=9, sampling=Sampling(max_tokens=3)),
        reward=Verdict(),
        advantage=GiGPO(),
        filters={},
        learner=Learning(optimizer=AdamW(lr=3e-4)),
    )
    learner = Learning(optimizer=AdamW(lr=3e-3))
    return replace(
        recipe,
        name="gigpo",
        models={"policy": Model(source="new", shape=Decoder(layers=2, width=64, mlp_width=192), trained=True)},
        tasks=tasks,
        stages={"sft": replace(sft_of(sft()), tasks=walks, epochs=4.0, learner=learner), "rl": stage},
        evaluation=Evaluation(holdout=40, samples=2),
    )
