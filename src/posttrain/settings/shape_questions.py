"""Shape questions: a new vision model is asked what there is in small pictures, and seldom finds all of it.

It first imitates demonstrations of four kinds, of which many are mistaken: whether a square of a colour is there, which
of four are, what there is, and plain sums of two digits. The reward is the overlap of the stated names with those in
the picture. A model this small needs several epochs of many questions of yes or no before its answers are better than
chance, and learns to name what there is from fewer.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.answer_set import AnswerSet
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes import VisionShape
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.shapes import COLOURS, FORMS, LETTERS, QUESTIONS, Shapes
from posttrain.components.tasks.tagged import Tagged
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations

WORDS: Final = (
    *("<think>", "</think>", "<answer>", "</answer>", ", ", "?", "Is there a ", "Which?", "What is there?"),
    *(*COLOURS, *(f" {form}" for form in FORMS), *QUESTIONS.values(), *(f" {letter} " for letter in LETTERS)),
    *(*LETTERS, "yes", "no", "+", "="),
    *(f"{number}" for number in range(19)),
)
"""One token each, so that an answer is short."""
SUMS: Final = Tagged(tasks=Arithmetic(size=300, terms=(2, 2), digits=(1, 1), operators="+"))
"""Questions of another kind."""


def shape_questions() -> Recipe:
    """A new decoder with vision, imitation, then groups of 8 answers for 16 pictures per step."""
    recipe = arithmetic()
    stage = replace(
        rl_of(recipe),
        steps=120,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=32)),
        reward=AnswerSet(),
        learner=replace(rl_of(recipe).learner, optimizer=AdamW(lr=1e-3)),
    )
    named = Shapes(question="names", size=1200, side=16, forms=("square",), shapes=(1, 3), mistakes=0.9)
    asked = {
        "yes_no": replace(named, question="yes_no", seed=1, size=1600, mistakes=0.15),
        "choice": replace(named, question="choice", seed=1, size=400, mistakes=0.5),
        "names": replace(named, seed=1, size=120),
    }
    imitation = sft_of(demonstrations())
    imitation = replace(
        imitation,
        tasks=Mixture(sources={**asked, "sums": SUMS}),
        epochs=8.0,
        batch=32,
        learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, context=128, words=WORDS, vision=VisionShape(patch=4, size=16))
    return replace(
        recipe,
        name="shape_questions",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=named,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=AnswerSet(), holdout=200),
    )
