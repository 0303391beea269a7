"""Open sums: half of the tasks have a verifier, and half have none and are rated by a critic.

All are sums of three or four numbers; the second half stands for tasks whose answers no rule can check. Held-out tasks
are of both halves, and all are verified.
"""

from dataclasses import replace

from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.mixture import Mixture
from posttrain.engines import Sampling
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic


def open_sums() -> Recipe:
    """Forty steps of 8 tasks with 8 rollouts each."""
    recipe = arithmetic()
    stage = replace(rl_of(recipe), steps=40, prompts=8, rollout=Independent(n=8, sampling=Sampling(max_tokens=64)))
    halves = {
        "checked": Arithmetic(size=1000, terms=(3, 4), operators="+-"),
        "open": Arithmetic(size=1000, terms=(3, 4), operators="+-", seed=1),
    }
    return with_stage(replace(recipe, name="open_sums", tasks=Mixture(sources=halves, domains="source")), stage)
