"""Padded words: sums of two to four numbers, solved in tags step by step, with trivial steps in between.

A new model first imitates worked solutions with trivial steps such as ``12+0=12``; the reward is for the answer alone,
on a line of its own. Numbers and tags are one token each, and there is one attention head: where a tag ends thoughts,
the answer is the next token, so that its attention is to few steps. With bytes as tokens, or several heads, the mean
attention is to all steps nearly alike.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.padded_steps import PaddedSteps
from posttrain.components.tasks.tagged import Tagged
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

REQUEST: Final = "\nTime is up. I should summarize the key steps of my thoughts now.\n"
WORDS: Final = (
    *("Q: ", "\nA:", "<think>", "</think>", "; ", "+", "=", REQUEST),
    *(str(number) for number in range(37)),
    *(f"\n{number}" for number in range(37)),
)
"""One token each; answers are lines."""


def padded_words() -> Recipe:
    """Eight epochs of imitation, then 30 steps of 8 tasks with 8 rollouts each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, epochs=8.0, batch=32, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=30,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=160)),
        reward=Match(),
        learner=Learning(optimizer=AdamW(lr=5e-5)),
    )
    shape = Decoder(layers=3, width=64, heads=1, kv_heads=1, mlp_width=192, context=256, words=WORDS)
    sums = Arithmetic(size=2000, terms=(2, 4), digits=(1, 1), operators="+")
    return replace(
        recipe,
        name="padded_words",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=Tagged(tasks=PaddedSteps(tasks=sums, most=3), tags=("think",)),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Match()),
    )
