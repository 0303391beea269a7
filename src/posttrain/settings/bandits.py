"""Bandits: a new model of 200k weights imitates whole episodes of a player of five arms, and then plays 50 turns."""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.bandits import Bandits
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
from posttrain.components.schedules.cosine import Cosine
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.episodes import Episodes
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

WORDS: Final = ("0\n", "1\n", "episode 0-", "a b c d e 50\n")
"""One token each."""


def bandits() -> Recipe:
    """A new decoder, and imitation of random play."""
    recipe = demonstrations()
    environment, tasks = Bandits(), Episodes(size=400)
    shown = Played(tasks=tasks, environment=environment, player="legal", turns=environment.horizon)
    learner = Learning(optimizer=AdamW(lr=3e-3), schedule=Cosine(warmup=0.05))
    stage = replace(sft_of(recipe), tasks=shown, batch=16, epochs=6.0, learner=learner)
    rollout = Turns(environment=environment, n=1, max_turns=environment.horizon, sampling=Sampling(max_tokens=3))
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="bandits",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": stage},
        evaluation=Evaluation(verifier=Verdict(value="solved"), holdout=40, rollout=rollout),
    )
