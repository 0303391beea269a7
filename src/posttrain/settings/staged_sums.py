"""Staged sums: a few demonstrated sums, many to be rewarded on, and sampling at the temperature of an entropy of 0.3.

The temperature was found by `posttrain diagnose temperature` for the model after imitation: 1.9.
"""

from dataclasses import replace

from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.mixture import Mixture
from posttrain.engines import Sampling
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic


def staged_sums() -> Recipe:
    """60 steps of 16 tasks with 8 rollouts of at most 96 tokens each."""
    recipe = arithmetic()
    shown = Arithmetic(size=128, terms=(3, 4), seed=1)
    bare = Arithmetic(size=1500, terms=(3, 4), demonstrate=False)
    rollout = Independent(n=8, sampling=Sampling(max_tokens=96, temperature=1.9))
    recipe = with_stage(recipe, replace(rl_of(recipe), steps=60, rollout=rollout))
    return replace(recipe, name="staged_sums", tasks=Mixture(sources={"shown": shown, "bare": bare}))
