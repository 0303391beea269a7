"""Shapes: a new vision model finds coloured shapes in small pictures, and answers with boxes and confidences.

The model is a decoder whose input embeddings of image tokens are linear in the pixels of a patch. It first imitates
imperfect demonstrations, whose mistakes are random confidences and superfluous boxes. The reward is the overlap of the
stated boxes with the reference boxes. Each picture has one shape: with two, the model cannot distinguish the one in the
question, and where sampled boxes rarely fit, the reward trains little besides confidences.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.boxes import Boxes
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes import VisionShape
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.shapes import COLOURS, CONFIDENCES, FORMS, Shapes
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations

WORDS: Final = (
    *(
        "<think>",
        "</think>",
        "<answer>",
        "</answer>",
        '[{"Position": [',
        '], "Confidence": ',
        '}, {"Position": [',
        "}]",
    ),
    *(*COLOURS, *(f" {form}" for form in FORMS), ", ", "Find every ", "What is it?", "one shape"),
    *(*(f"{number}" for number in range(17)), *CONFIDENCES),
)
"""One token each, so that an answer is short: a coordinate is a choice among 17."""


def shapes() -> Recipe:
    """A new decoder with vision, three epochs of imitation, then groups of 8 answers for 32 pictures per step."""
    recipe = arithmetic()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        prompts=32,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=64)),
        reward=Boxes(),
        learner=replace(stage.learner, optimizer=AdamW(lr=5e-4)),
    )
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, epochs=3.0, batch=32, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    shape = Decoder(layers=2, width=64, mlp_width=192, context=128, words=WORDS, vision=VisionShape(patch=4, size=16))
    return replace(
        recipe,
        name="shapes",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=Shapes(size=4000, side=16, shapes=(1, 1), jitter=0),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Boxes(), correct_at=0.5),
    )
