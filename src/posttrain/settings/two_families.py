"""Two families: half sums, which rewards can teach, and half sums spelt in letters, which only demonstrations can.

The bundled model solves a part of the sums of three or four numbers, and none of the sums whose answer is spelt in
letters (`L: 49+80`, answer `bcj`): in 40 of them, with 32 samples of each, not one was correct. Only the letters have
demonstrations. Rewards alone therefore leave the second half at 0, and imitation alone spoils the sums: 60 updates of
it, one seed, took the letters from 0 to 46.6 % and the sums from 20.6 to 14.4 %. The evaluation gives the accuracy of
each family (`accuracy_by_domain`).
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.spelt import Spelt
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.training.settings import Learning

SUMS = Arithmetic(size=1000, terms=(3, 4), demonstrate=False)
LETTERS = Spelt(tasks=Arithmetic(size=1000, seed=1, terms=(2, 2), digits=(2, 2), operators="+"))


def two_families() -> Recipe:
    """Arithmetic of both families, 60 steps of 32 tasks with 4 rollouts each; only letters are demonstrated."""
    recipe = arithmetic()
    stage = rl_of(recipe)
    tasks = Mixture(sources={"sums": SUMS, "letters": LETTERS}, domains="source")
    stage = replace(
        stage,
        steps=60,
        prompts=32,
        rollout=Independent(n=4, sampling=Sampling(max_tokens=64)),
        learner=Learning(optimizer=AdamW(lr=4e-4)),
    )
    return replace(
        recipe,
        name="two_families",
        tasks=tasks,
        stages={"rl": stage},
        evaluation=Evaluation(holdout=200, verifier=Match()),
    )
