"""Ciphers: sentences of 6 to 12 words are translated word by word; the reward is the form, and BLEU.

The bundled model first imitates a few demonstrations, of which half lack a tag. Held-out translations count as correct
where their form is whole; with `evaluation.correct_at=1.4` those do whose BLEU is above 40.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.translated import Translated
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.ciphers import Ciphers
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def ciphers() -> Recipe:
    """80 updates of imitation, then 40 steps of 8 sentences with 8 translations each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, batch=16, max_steps=80, learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3)))
    stage = replace(
        rl_of(recipe),
        steps=40,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=96)),
        reward=Translated(),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="ciphers",
        tasks=Ciphers(size=1500, broken=0.5),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=stage.reward),
    )
