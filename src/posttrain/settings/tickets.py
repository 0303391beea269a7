"""Tickets: a new model of 200k weights asks a user what a ticket is about, and sends it to a desk.

It first imitates a clerk who asks for every fact once.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.tickets import Tickets
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

WORDS: Final = (
    *(f"?{fact}" for fact in (1, 2, 3)),
    *(f"={a}{b}{c}" for a in "01" for b in "01" for c in "01"),
    *("\nYes.\n", "\nNo.\n", "\nHello.\n", "\nPardon?\n", "episode 0-"),
)
"""One token each."""


def tickets() -> Recipe:
    """A new decoder, imitation of the solver, then groups of 8 dialogues."""
    recipe = arithmetic()
    environment, tasks = Tickets(), Episodes(size=400)
    shown = Played(tasks=tasks, environment=environment, player="solver", turns=8)
    imitation = replace(sft_of(demonstrations()), tasks=shown, epochs=4.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=40,
        prompts=8,
        rollout=Turns(environment=environment, n=8, max_turns=8, sampling=Sampling(max_tokens=4)),
        reward=Verdict(),
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="tickets",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verdict(value="solved"), holdout=40, samples=2),
    )
