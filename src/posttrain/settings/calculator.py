"""Calculator: a tiny model learns to call a tool, first by imitation of a few calls, then by reinforcement.

The bundled model can add small numbers, but not multiply larger ones. Here an equals sign calls a calculator, whose
result is inserted after it as an observation and is not trained. What to calculate and what to answer is learned from a
reward for the correct final answer.
"""

from dataclasses import replace

from posttrain.components.environments.calculator import Calculator
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.turns import Turns
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.quickstart import quickstart


def calculator() -> Recipe:
    """The quickstart with harder sums, a calculator, and demonstrations that call it."""
    recipe = quickstart()
    tool = Calculator(opening=" ", closing="=")
    tasks = Arithmetic(size=2000, terms=(2, 3), digits=(1, 3), operators="+-*", calls=True)
    answer = Match(extract=("hashes",))
    stage = replace(
        rl_of(recipe),
        rollout=Turns(environment=tool, n=8, max_turns=6, sampling=Sampling(max_tokens=32)),
        reward=answer,
    )
    imitation = sft_of(recipe)
    learner = replace(imitation.learner, optimizer=AdamW(lr=5e-4))
    shown = replace(imitation, tasks=Played(tasks=tasks, environment=tool), max_steps=40, learner=learner)
    return replace(
        recipe,
        name="calculator",
        tasks=tasks,
        stages={"sft": shown, "rl": stage},
        evaluation=replace(recipe.evaluation, verifier=answer),
    )
