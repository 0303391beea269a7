"""Hundred sums: a model with the form of an answer, and a hundred tasks to be rewarded on.

The form is ``<think>...</think><answer>...</answer>``. The bundled model imitates it on sums of two or three numbers
first: that is the base that methods are compared from. The hundred tasks are sums of three or four.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.knights import Knights as Solved
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.routed import Routed
from posttrain.components.rollouts.independent import Independent
from posttrain.components.schedules.cosine import Cosine
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.knights import Knights
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.tagged import Tagged
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def hundred_sums() -> Recipe:
    """60 updates of imitation, then 40 steps of 10 tasks with 10 rollouts each; tested on sums and on puzzles."""
    recipe = arithmetic()
    base = replace(
        sft_of(demonstrations()),
        max_steps=60,
        learner=Learning(optimizer=AdamW(lr=3e-3), schedule=Cosine(warmup=0.05)),
        tasks=Tagged(tasks=Arithmetic(size=2000, seed=1, terms=(2, 3))),
    )
    stage = replace(rl_of(recipe), steps=40, prompts=10, rollout=Independent(n=10, sampling=Sampling(max_tokens=96)))
    tested = {
        "sums": Arithmetic(size=150, seed=2, terms=(3, 4), demonstrate=False),
        "knights": Knights(size=50, seed=2, people=(3, 3), demonstrate=False),
    }
    return replace(
        recipe,
        name="hundred_sums",
        tasks=Arithmetic(size=100, terms=(3, 4), demonstrate=False),
        stages={"base": base, "rl": stage},
        evaluation=Evaluation(
            tasks=Mixture(sources=tested, domains="source"),
            verifier=Routed(parts={"sums": Match(), "knights": Solved()}),
            sampling=Sampling(max_tokens=256),
        ),
    )
