"""Quickstart: a tiny model learns to show its working, first by imitation, then by reinforcement.

The bundled model can add up three or four numbers one step at a time, but mostly it blurts an answer out, and is wrong.
Imitating 128 worked solutions helps; reinforcement, which only ever sees whether the answer was right, then makes
it write the working every time. About a minute on two cores.
"""

from dataclasses import replace

from posttrain.components.rewards.match import Match
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations


def quickstart() -> Recipe:
    """Arithmetic, with imitation of a few demonstrations before it."""
    recipe = arithmetic()
    imitation = replace(sft_of(demonstrations()), batch=16, max_steps=8)
    return replace(
        recipe,
        name="quickstart",
        stages={"sft": imitation, "rl": replace(rl_of(recipe), steps=40)},
        evaluation=Evaluation(verifier=Match(), every=10),
    )
