"""Repairs: the bundled model repairs a small program by an edit block, as an issue describes it.

It first imitates edits of which one in five is right and half have search and replacement exchanged. The reward is 1
for the true patch, -1 for what has no form or cannot be applied; a held-out patch is correct where it is the true one.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.patch_similarity import PatchSimilarity
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.repairs import Repairs
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def repairs() -> Recipe:
    """450 updates of imitation, then 40 steps of 8 programs with 8 patches each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=3e-3))
    sampling = Sampling(max_tokens=160)
    stage = replace(
        rl_of(recipe),
        steps=40,
        prompts=8,
        rollout=Independent(n=8, sampling=sampling),
        reward=PatchSimilarity(measure="exact"),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
    )
    return replace(
        recipe,
        name="repairs",
        tasks=Repairs(size=2000, slips=0.8, lettered=True),
        stages={"sft": replace(imitation, batch=8, epochs=5.0, max_steps=450, learner=learner), "rl": stage},
        evaluation=Evaluation(verifier=PatchSimilarity(), holdout=100, sampling=sampling),
    )
