"""Recorded shopping: a new model of 140,000 weights predicts a shopper's next action, all or nothing.

It first imitates demonstrations of which most end the visit. Held-out visits count as correct if the action is the
recorded one.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.next_action import NextAction
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.recorded_shopping import WORDS, RecordedShopping
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def recorded_shopping() -> Recipe:
    """A new decoder, two epochs of imitation, then 60 steps of 16 visits with 8 predictions each."""
    recipe = arithmetic()
    imitation = replace(sft_of(demonstrations()), epochs=2.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    reward = NextAction(levels="binary")
    stage = replace(
        rl_of(recipe),
        steps=60,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=24)),
        reward=reward,
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="recorded_shopping",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=RecordedShopping(size=2000),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=reward, holdout=200, correct_at=1.5),
    )
