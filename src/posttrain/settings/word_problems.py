"""Word problems: a real chat model (``posttrain fetch smollm2``) is rewarded for the answers of generated problems.

Held-out answers are scored by a stricter verifier than the training reward.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.one_answer import OneAnswer
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.word_problems import WordProblems
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

MODEL: Final = "models/smollm2"
"""Where `posttrain fetch smollm2` writes the model."""


def word_problems() -> Recipe:
    """40 steps of 8 problems of one calculation, 16 completions each, learned at a rate for a model of 135M weights.

    At temperature 1 this quantized model often wanders off, so that it is sampled at 0.6. docs/real-model.md has the
    figures.
    """
    recipe = arithmetic()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        steps=40,
        prompts=8,
        rollout=Independent(n=16, sampling=Sampling(max_tokens=32, temperature=0.6)),
        reward=Match(),
        learner=replace(stage.learner, optimizer=AdamW(lr=1e-5)),
    )
    return replace(
        recipe,
        name="word_problems",
        models={"policy": Model(source=MODEL, context=512, trained=True)},
        tasks=WordProblems(size=1500, steps=(1, 1), distractors=0, instruction="Answer with one number."),
        stages={"rl": stage},
        evaluation=Evaluation(verifier=OneAnswer(), holdout=300, every=10),
    )
