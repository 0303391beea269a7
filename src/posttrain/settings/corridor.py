"""Corridor: an agent walks through a corridor in several turns; a new model of 200k weights learns to act.

It first imitates random walks, to learn the format of actions.
"""

from dataclasses import replace

from posttrain.components.environments.corridor import Corridor as CorridorEnvironment
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.corridor import Corridor
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def corridor() -> Recipe:
    """A new model, imitation of random walks, then rollouts of up to nine turns."""
    recipe = arithmetic()
    environment, tasks = CorridorEnvironment(), Corridor(size=400)
    walks = Played(tasks=tasks, environment=environment, actions=("f", "s", "b"), turns=9)
    imitation = replace(sft_of(demonstrations()), tasks=walks, epochs=4.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Turns(environment=environment, n=8, max_turns=9, sampling=Sampling(max_tokens=3)),
        reward=Verdict(),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
    )
    return replace(
        recipe,
        name="corridor",
        models={"policy": Model(source="new", shape=Decoder(layers=2, width=64, mlp_width=192), trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(holdout=40, samples=2),
    )
