"""Procedures: a new model of 200k weights applies one of four procedures to a number; which is right is to be learned.

It first imitates the procedures, with and without a hint, and requests for hints, which are random: a bare prompt is
answered rightly once in four times.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.procedures import KINDS, Procedures
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

WORDS: Final = (
    *(f"k{kind}" for kind in range(KINDS)),
    *(f" h{kind}" for kind in range(KINDS)),
    *(f" {number}" for number in range(60)),
    *("\nHint:", "Hint:", "\nAnswer:"),
)
"""One token each."""


def procedures() -> Recipe:
    """A new decoder, imitation of all forms, then groups of 8 for 32 problems per step."""
    recipe = arithmetic()
    forms = {"bare": Procedures(size=1500), "hinted": Procedures(size=6000, form="hinted")}
    shown = Mixture(sources={**forms, "hint": Procedures(size=500, form="hint")})
    imitation = replace(
        sft_of(demonstrations()), tasks=shown, batch=64, epochs=4.0, learner=Learning(optimizer=AdamW(lr=3e-3))
    )
    reward = Match(extract=("whole",))
    stage = replace(
        rl_of(recipe),
        steps=120,
        prompts=32,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=2)),
        reward=reward,
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="procedures",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=Procedures(size=240),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=reward, holdout=80),
    )
