"""Rooms: a new model of 200k weights moves around a ring of dark rooms and of rooms full of random colours.

It first imitates random moves, to learn the format.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.rooms import ACTIONS, COLOURS, DARK, Rooms
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.episodes import Episodes
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

WORDS: Final = (DARK, *COLOURS, *ACTIONS, "none", "; ", "episode 0-")
"""One token each."""


def rooms() -> Recipe:
    """A new decoder, imitation of random moves, then groups of 8 episodes rewarded by the rooms visited."""
    recipe = arithmetic()
    environment, tasks = Rooms(horizon=16), Episodes(size=200)
    shown = Played(tasks=tasks, environment=environment, player="legal", turns=16)
    imitation = replace(
        sft_of(demonstrations()), tasks=shown, batch=16, epochs=4.0, learner=Learning(optimizer=AdamW(lr=3e-3))
    )
    stage = replace(
        rl_of(recipe),
        steps=10,
        prompts=2,
        rollout=Turns(environment=environment, n=8, max_turns=16, sampling=Sampling(max_tokens=2)),
        reward=Verdict(),
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="rooms",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verdict(), holdout=20, samples=2),
    )
