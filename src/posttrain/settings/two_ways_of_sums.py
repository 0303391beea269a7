"""Two ways of sums: easy and hard sums, each answered at once or after thoughts, as the model chooses.

The domain of a task is ``easy`` (two numbers) or ``hard`` (four numbers). Imitation teaches both
ways for both.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.two_ways import TwoWays
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

EASY = Arithmetic(size=1000, terms=(2, 2))
HARD = Arithmetic(size=1000, seed=1, terms=(4, 4))


def two_ways_of_sums() -> Recipe:
    """Four epochs of imitation of both ways, then 40 steps of 16 tasks with 8 rollouts each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=3e-3))
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=128)),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
    )
    sources = {"easy": EASY, "hard": HARD}
    return replace(
        recipe,
        name="two_ways_of_sums",
        tasks=TwoWays(tasks=Mixture(sources=sources, shares={"easy": 1.0, "hard": 1.0}, domains="source")),
        stages={"sft": replace(imitation, epochs=4.0, learner=learner), "rl": stage},
        evaluation=Evaluation(holdout=100, verifier=stage.reward),
    )
