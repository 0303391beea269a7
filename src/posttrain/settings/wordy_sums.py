"""Wordy sums: a few demonstrations whose steps are checked needlessly, and sums to be rewarded on.

The bundled model does not know the form, so it imitates it first; `two_stage` then shortens the solutions.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rollouts.independent import Independent
from posttrain.components.schedules.cosine import Cosine
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.wordy import Wordy
from posttrain.engines import Sampling
from posttrain.recipes.changes import rl_of, sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def wordy_sums() -> Recipe:
    """Imitation of 480 demonstrations for an epoch, then 40 steps of 8 tasks with 8 rollouts each."""
    recipe = arithmetic()
    shown = Wordy(tasks=Arithmetic(size=480, terms=(2, 3), seed=1), most=1)
    bare = Arithmetic(size=800, terms=(2, 3), demonstrate=False)
    stage = replace(rl_of(recipe), steps=40, prompts=8, rollout=Independent(n=8, sampling=Sampling(max_tokens=128)))
    learner = Learning(optimizer=AdamW(lr=1.5e-3), schedule=Cosine(warmup=0.05))
    imitation = replace(sft_of(demonstrations()), batch=32, learner=learner)
    recipe = with_stage(recipe, stage)
    return replace(
        recipe,
        name="wordy_sums",
        tasks=Mixture(sources={"shown": shown, "bare": bare}),
        stages={"sft": imitation, **recipe.stages},
    )
