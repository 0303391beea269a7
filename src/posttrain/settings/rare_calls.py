"""Rare calls: the bundled model multiplies, mostly by guessing at once, and has a calculator that it hardly calls.

It first imitates products of which one in ten is worked with the calculator.
"""

from dataclasses import replace

from posttrain.components.environments.calculator import Calculator
from posttrain.components.filters.outcome import Outcome
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.turns import Turns
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.played import Played
from posttrain.components.tasks.rare_calls import RareCalls
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def rare_calls() -> Recipe:
    """The bundled model, imitation, then one round of own correct rollouts with the tool."""
    recipe = arithmetic()
    tool = Calculator()
    tasks = RareCalls(tasks=Arithmetic(size=2000, terms=(2, 2), digits=(2, 2), operators="*"))
    imitation = replace(
        sft_of(demonstrations()),
        tasks=Played(tasks=tasks, environment=tool),
        max_steps=60,
        epochs=2.0,
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    answer = Match(extract=("hashes",))
    stage = replace(
        rl_of(recipe),
        steps=1,
        prompts=100,
        rollout=Turns(environment=tool, n=8, max_turns=7, sampling=Sampling(max_tokens=32)),
        reward=answer,
        filters={"outcome": Outcome()},
        learner=Learning(optimizer=AdamW(lr=3e-4), epochs=4, minibatches=8),
    )
    return replace(
        recipe,
        name="rare_calls",
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=answer, holdout=100),
    )
