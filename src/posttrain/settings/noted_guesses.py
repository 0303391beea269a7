"""Noted guesses: a new model of 200k weights names the box that a ball is in, and reads notes on earlier episodes.

It first imitates random answers in episodes of two turns, and answers after notes, which avoid the boxes of the notes
and are right half of the time where the box is stated. Half of the prompts do not have the answer: only notes help
there. Held-out questions have one episode.
"""

from dataclasses import replace

from posttrain.components.environments.try_again import TryAgain
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.guessing import Guessing
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.guessing import BOXES, WORDS, guessing
from posttrain.training.settings import Learning


def noted_guesses() -> Recipe:
    """Imitation of answers that are sometimes right, then groups of 8 episodes for 16 questions per step."""
    recipe = guessing()
    shape = recipe.models["policy"].shape
    assert isinstance(shape, Decoder)
    environment = TryAgain(tries=2, feedback="No.\nBox:")
    answers = Played(
        tasks=Guessing(size=1000), environment=environment, actions=tuple(f" {box}" for box in BOXES), turns=2
    )
    shown = Mixture(sources={"played": answers, "noted": Guessing(size=5000, notes=2, seed=1)})
    imitation = replace(sft_of(recipe), tasks=shown, epochs=14.0, batch=64, learner=Learning(optimizer=AdamW(lr=3e-3)))
    turns = Turns(environment=environment, n=8, max_turns=2, sampling=Sampling(max_tokens=4))
    learner = Learning(optimizer=AdamW(lr=1e-3), epochs=2, minibatches=4)
    stage = replace(rl_of(recipe), steps=16, rollout=turns, learner=learner)
    return replace(
        recipe,
        name="noted_guesses",
        models={"policy": Model(source="new", shape=replace(shape, words=(*WORDS, "Not", ".\n")), trained=True)},
        stages={"sft": imitation, "rl": stage},
        evaluation=replace(recipe.evaluation, rollout=turns, holdout=200, samples=0),
    )
