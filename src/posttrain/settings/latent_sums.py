"""Latent sums: the bundled model imitates worked sums of three digits, and is then rewarded for the answer."""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations


def latent_sums() -> Recipe:
    """1000 updates of imitation, then 40 steps of 8 tasks with 8 rollouts each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(
        imitation, batch=16, epochs=16.0, max_steps=1000, learner=replace(imitation.learner, optimizer=AdamW(lr=1e-3))
    )
    stage = replace(
        rl_of(recipe), steps=40, prompts=8, rollout=Independent(n=8, sampling=Sampling(max_tokens=48, top_p=0.9))
    )
    return replace(
        recipe,
        name="latent_sums",
        tasks=Arithmetic(size=1200, terms=(3, 3), digits=(1, 1)),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Match(), holdout=200),
    )
