"""Boxes: a new model of 200k weights names the box that a ball is in, which the prompt states.

It first imitates random answers, to learn the format.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.try_again import TryAgain
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.guessing import Guessing
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

BOXES: Final = tuple("abcd")
WORDS: Final = (*("Ball ", ", boxes abcd, in ", ".\nBox:", "\nBall "), *(f" {box}" for box in BOXES), *BOXES)
"""One token each, so that an answer is one choice."""


def boxes() -> Recipe:
    """A new decoder, imitation of random answers, then groups of 16 answers to 16 questions per step."""
    recipe = arithmetic()
    tasks, answer = Guessing(size=1000, options=len(BOXES), hidden=0.0), Match(extract=("whole",))
    shown = Played(tasks=tasks, environment=TryAgain(), actions=tuple(f" {box}" for box in BOXES), turns=1)
    imitation = replace(sft_of(demonstrations()), tasks=shown, max_steps=29, learner=Learning(optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=60,
        prompts=16,
        rollout=Independent(n=16, sampling=Sampling(max_tokens=2)),
        reward=answer,
        learner=Learning(optimizer=AdamW(lr=3e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="boxes",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=answer, holdout=60),
    )
