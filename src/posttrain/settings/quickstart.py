"""Quickstart: a tiny model learns to solve sums step by step, first by imitation, then by reinforcement.

The bundled model can add three or four numbers one step at a time, but mostly it answers at once, and is wrong.
Imitation of 128 worked solutions helps. Reinforcement, with a reward for correct answers only, then makes it work out
every solution. About a minute on two cores.
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
