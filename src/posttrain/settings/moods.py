"""Moods: a new model of 200k weights talks with a user whose need it has to meet, in four turns.

It first imitates random replies, to learn the format. Each reply moves the mood by 10, the most that is allowed, so
that two minutes are enough to learn from the mood at the end; the environment has +6, -4 and eight turns.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.moods import LINES, SILENT, Moods
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

WORDS: Final = ("<think>", "</think>", *LINES, *LINES.values(), SILENT, "\nThanks. ", "\nNo. ", "episode 0-")
"""One token each."""


def moods() -> Recipe:
    """A new decoder, imitation of random replies, then groups of 8 dialogues of four turns."""
    recipe = arithmetic()
    environment, tasks = Moods(gain=10, loss=10, horizon=4), Episodes(size=400)
    shown = Played(tasks=tasks, environment=environment, player="legal", turns=4)
    imitation = replace(sft_of(demonstrations()), tasks=shown, epochs=4.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=40,
        prompts=16,
        rollout=Turns(environment=environment, n=8, max_turns=4, sampling=Sampling(max_tokens=8)),
        reward=Verdict(),
        learner=Learning(optimizer=AdamW(lr=3e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="moods",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verdict(value="solved"), holdout=40, samples=2),
    )
