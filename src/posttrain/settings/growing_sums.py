"""Growing sums: training tasks are sums of two or three numbers, held-out ones have four or five.

There are 96 training tasks, two steps of 48. What is learned beyond them has to be made in the run.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.training.settings import Learning


def growing_sums() -> Recipe:
    """20 steps of 48 tasks with 6 rollouts each, two epochs of three updates per step."""
    test = Arithmetic(size=200, terms=(4, 5), seed=1)
    recipe = replace(
        arithmetic(),
        name="growing_sums",
        tasks=Arithmetic(size=96, terms=(2, 3)),
        evaluation=Evaluation(tasks=test),
    )
    stage = replace(
        rl_of(recipe),
        steps=20,
        prompts=48,
        rollout=Independent(n=6, sampling=Sampling(max_tokens=64, temperature=0.7, top_p=0.9)),
        learner=Learning(optimizer=AdamW(lr=1e-4), epochs=2, minibatches=3),
    )
    return with_stage(recipe, stage)
