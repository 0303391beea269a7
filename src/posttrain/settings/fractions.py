"""Fractions: sums whose value has three right forms; the reward takes the form of the reference answer only.

The bundled model first imitates worked sums, with the value in a random form. Held-out answers count in any form.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.listed import Listed
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.fractions import Fractions
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def fractions() -> Recipe:
    """240 updates of imitation, then 30 steps of 16 sums with 8 answers each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(
        imitation, batch=16, epochs=4.0, max_steps=240, learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3))
    )
    stage = replace(
        rl_of(recipe),
        steps=30,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=64)),
        reward=Match(extract=("boxed",), numeric="never"),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="fractions",
        tasks=Fractions(size=1500, hedged=0.2),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Listed(), holdout=200),
    )
