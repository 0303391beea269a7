"""Halves: a new model of 60k weights talks to itself about two letters, of which each side has one.

It first imitates wordy conversations, in some of which an answer is guessed at once. Held-out questions are answered by
a conversation.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.conversation import Conversation
from posttrain.components.rollouts._exchange import Form
from posttrain.components.rollouts.dialogue import Dialogue
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.halves import CONTEXT, FILLERS, LETTERS, Halves
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

WORDS: Final = (*CONTEXT, ".\n", *FILLERS, *(f" {letter}" for letter in LETTERS), " <", ">\n")
"""One token each."""
MUTE: Final = 8
"""Tokens of a conversation of two answers and nothing else."""


def halves() -> Recipe:
    """A new decoder, imitation of wordy conversations, then rounds of 32 questions with 10 conversations each."""
    recipe = arithmetic()
    talk = Dialogue(
        n=10,
        max_turns=6,
        form=Form(view="{context}", heard="{text}\n", answer=r"<(\w+)>"),
        sampling=Sampling(max_tokens=16, stop=("\n",)),
    )
    imitation = replace(
        sft_of(demonstrations()),
        tasks=Halves(size=3000, seed=1, which="shown"),
        batch=64,
        max_steps=200,
        epochs=10.0,
        learner=Learning(optimizer=AdamW(lr=3e-3)),
    )
    reward = Conversation(tokens=0.0, language=0.25, mute=MUTE)
    stage = replace(
        rl_of(recipe),
        steps=6,
        prompts=32,
        rollout=talk,
        reward=reward,
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=128, words=WORDS, context=160)
    return replace(
        recipe,
        name="halves",
        models={
            "policy": Model(source="new", shape=shape, trained=True),
            "base": Model(source="role:policy", trained=True),
        },
        tasks=Halves(size=600),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=replace(reward, language=0.0), rollout=talk, holdout=60),
    )
