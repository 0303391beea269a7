"""Banned word: a new model of 130,000 weights writes two sentences, three in ten of which have an unwanted word.

It first imitates such texts. The reward is -1 for each sentence with the word, given at the end of the text. Held-out
texts count as correct without the word.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.segments import Segments
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.sentences import UNWANTED, WORDS, Sentences
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def banned_word() -> Recipe:
    """A new decoder, two epochs of imitation, then 30 steps of 16 prompts with 4 texts each."""
    recipe = arithmetic()
    reward = Segments(of=Regex(pattern=rf"\b{UNWANTED}\b"), faults=True, right=0.0, wrong=-1.0, placed=False)
    imitation = replace(sft_of(demonstrations()), epochs=2.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=30,
        rollout=Independent(n=4, sampling=Sampling(max_tokens=24)),
        reward=reward,
        learner=Learning(optimizer=AdamW(lr=3e-4)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="banned_word",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=Sentences(size=1500),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=replace(reward, right=0.5), correct_at=1.0, holdout=100),
    )
