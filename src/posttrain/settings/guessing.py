"""Guessing: a new model of 200k weights names the box that a ball is in; half of the prompts do not have the answer.

It first imitates random answers, to learn the format, and then has one turn per question. Held-out questions have up to
five turns, with the feedback that the last answer was wrong; a question counts as solved if any turn solves it
(Succ@5).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.try_again import TryAgain
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
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

BOXES: Final = tuple("abcdef")
WORDS: Final = (
    *("Ball ", ", boxes abcdef, in ", ", boxes abcdef, hidden", ".\nBox:", "No.\nBox:"),
    *(f" {box}" for box in BOXES),
    *BOXES,
)
"""One token each, so that an answer is one choice, at the same distance from the last answer in every turn."""


def guessing() -> Recipe:
    """A new decoder, imitation of random answers, then groups of 16 single turns for 16 questions per step."""
    recipe = arithmetic()
    environment, tasks = TryAgain(feedback="No.\nBox:"), Guessing(size=1000)
    five_tries = Turns(environment=environment, n=16, max_turns=5, sampling=Sampling(max_tokens=4))
    answers = Played(tasks=tasks, environment=environment, actions=tuple(f" {box}" for box in BOXES), turns=5)
    imitation = replace(sft_of(demonstrations()), tasks=answers, learner=Learning(optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        prompts=16,
        rollout=replace(five_tries, max_turns=1),
        reward=Verdict(),
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="guessing",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verdict(value="solved"), rollout=five_tries, holdout=60, samples=2),
    )
