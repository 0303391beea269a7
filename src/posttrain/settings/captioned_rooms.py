"""Captioned rooms: a new model of 200k weights has to find a key, a door and an exit, of which only the exit counts.

It first imitates random walks, to learn the format. Every observation has a caption.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.captioned import ACTIONS, HEIGHT, KINDS, Captioned
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

ROOM: Final = 2
WORDS: Final = (
    *(f"{caption}\n" for caption in KINDS),
    *(f"x{x} " for x in range(2 * ROOM + 1)),
    *(f"y{y} " for y in range(HEIGHT)),
    *(f"{held} {door}\n" for held in ("key", "here", "none") for door in ("open", "shut")),
    *ACTIONS,
    "episode 0-",
)
"""One token each."""


def captioned_rooms() -> Recipe:
    """A new decoder, imitation of random walks, then 120 steps of 32 episodes."""
    recipe = arithmetic()
    environment, tasks = Captioned(room=ROOM, horizon=20), Episodes(size=200)
    shown = Played(tasks=tasks, environment=environment, player="legal", turns=environment.horizon)
    imitation = replace(
        sft_of(demonstrations()), tasks=shown, batch=16, epochs=6.0, learner=Learning(optimizer=AdamW(lr=3e-3))
    )
    stage = replace(
        rl_of(recipe),
        steps=120,
        prompts=4,
        rollout=Turns(environment=environment, n=8, max_turns=environment.horizon, sampling=Sampling(max_tokens=2)),
        reward=Verdict(),
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="captioned_rooms",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verdict(), holdout=20, samples=2),
    )
