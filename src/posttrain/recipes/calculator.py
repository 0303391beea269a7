"""Calculator: a tiny model learns to call a tool, first by imitation of a few calls, then by reinforcement.

The bundled model knows sums of small numbers by heart, and not one product of larger ones. A calculator does, which it
calls by writing ``<<47*35>>``. What it is answered stands in its text, and is not trained. The call itself is learned
from whether the final answer was right.
"""

from dataclasses import replace

from posttrain.engines import Sampling
from posttrain.environments.calculator import Calculator
from posttrain.recipe import Recipe
from posttrain.recipes._change import rl_of, sft_of
from posttrain.recipes.quickstart import quickstart
from posttrain.rewards.match import Match
from posttrain.rollouts.turns import Turns
from posttrain.tasks.arithmetic import Arithmetic
from posttrain.tasks.played import Played


def calculator(recipe: Recipe | None = None) -> Recipe:
    """A change to the quickstart: harder sums, a calculator to call, and demonstrations that call it."""
    recipe = recipe or quickstart()
    tool = Calculator()
    tasks = Arithmetic(size=2000, terms=(2, 3), digits=(2, 3), operators="+-*", calls=True)
    answer = Match(extract=("hashes",))
    stage = replace(
        rl_of(recipe),
        rollout=Turns(environment=tool, n=8, max_turns=6, sampling=Sampling(max_tokens=32)),
        reward=answer,
    )
    shown = replace(sft_of(recipe), tasks=Played(tasks=tasks, environment=tool))
    return replace(
        recipe,
        name="calculator",
        tasks=tasks,
        stages={"sft": shown, "rl": stage},
        evaluation=replace(recipe.evaluation, verifier=answer),
    )
