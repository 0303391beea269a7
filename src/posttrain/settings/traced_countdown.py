"""Traced countdown: tasks of three different numbers with + and -, with one dead end in every demonstration.

With all four operators the bundled model hardly learns the game: after 120 updates of imitation it solved 6.7 % of the
tasks without dead ends, one seed.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.countdown import Countdown as CountdownReward
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.backtracked import Backtracked
from posttrain.components.tasks.countdown import Countdown
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.training.settings import Learning


def traced_countdown() -> Recipe:
    """30 steps of 16 tasks with 8 rollouts each."""
    recipe = arithmetic()
    stage = replace(
        rl_of(recipe),
        steps=30,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=192)),
        reward=CountdownReward(),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    puzzles = Countdown(size=4000, numbers=(3, 3), operators="+-", differ=True)
    return replace(
        recipe,
        name="traced_countdown",
        tasks=Backtracked(tasks=puzzles, operators="+-"),
        stages={"rl": stage},
        evaluation=Evaluation(verifier=CountdownReward(), sampling=Sampling(max_tokens=192)),
    )
