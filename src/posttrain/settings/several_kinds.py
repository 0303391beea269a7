"""Several kinds: sums and exercises with words, which the bundled model solves in very unequal shares.

Of 100 tasks of each it solves about 20 sums, 45 reversals, 50 copies, 60 sortings and all counts. Each kind has its
verifier; the evaluation gives the accuracy of each (`accuracy_by_domain`).
"""

from dataclasses import replace

from posttrain.components.rewards import Reward
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.routed import Routed
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.exercises import Exercises
from posttrain.components.tasks.mixture import Mixture
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

NUMBER = Match(numeric="always")
TEXT = Match(numeric="never", extract=("last_line",))
VERIFIERS: dict[str, Reward] = {"sums": NUMBER, "copy": TEXT, "reverse": TEXT, "sort": TEXT, "count": NUMBER}


def several_kinds() -> Recipe:
    """Arithmetic and four kinds of exercises, 60 steps of 16 tasks with 4 rollouts each."""
    recipe = arithmetic()
    rollout = Independent(n=4, sampling=Sampling(max_tokens=64))
    stage = replace(rl_of(recipe), steps=60, rollout=rollout, reward=Routed(parts=VERIFIERS))
    return replace(
        recipe,
        name="several_kinds",
        tasks=Mixture(sources=of_kinds(seed=0, size=400), domains="source"),
        stages={"rl": stage},
        evaluation=Evaluation(holdout=300),
    )


def of_kinds(*, seed: int, size: int, demonstrate: bool = True) -> dict[str, Tasks]:
    """Number of tasks of each kind."""
    words = {
        name: Exercises(names=(name,), size=size, seed=seed, items=(4, 6), demonstrate=demonstrate)
        for name in ("copy", "reverse", "sort", "count")
    }
    return {"sums": Arithmetic(size=size, seed=seed, terms=(3, 4), demonstrate=demonstrate), **words}
