"""Identities: true and false statements about sums, proved or disproved; the reward is for the right verdict.

The bundled model first imitates worked verdicts. The evaluation, on other statements, also counts those of which
both variants are right (`accuracy_of_all_variants`).
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.proved import Proved
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.identities import Identities
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def identities() -> Recipe:
    """160 updates of imitation, then 40 steps of 16 statements with 8 answers each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(
        imitation, batch=16, epochs=2.0, max_steps=160, learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3))
    )
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=96)),
        reward=Proved(gates=False),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="identities",
        tasks=Identities(size=1600),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(tasks=Identities(size=160, seed=1), verifier=Proved(), holdout=160),
    )
