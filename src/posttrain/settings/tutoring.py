"""Tutoring: a new model learns to write a tutor's record of a student's turn, with labels of what to do.

It first imitates 150 reference records; its answers to the next 300 tasks are then wrong now and then. Pairs of the
tasks have a record with one other label.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.fields import Fields
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.tutoring import FIELDS, WORDS, Tutoring
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import preference_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.sum_pairs import sum_pairs

IMITATED: Final = 150
"""Tasks that are imitated; pairs are of the others."""


def tutoring() -> Recipe:
    """30 epochs of imitation in batches of 16, then 100 steps on 16 pairs each."""
    recipe = sum_pairs()
    imitation, pairs = sft_of(demonstrations()), preference_of(recipe)
    imitation = replace(
        imitation,
        batch=16,
        epochs=30.0,
        limit=IMITATED,
        learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)),
    )
    pairs = replace(
        pairs,
        batch=16,
        epochs=20.0,
        max_steps=100,
        skip=IMITATED,
        learner=replace(pairs.learner, optimizer=AdamW(lr=3e-4)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, context=128, words=WORDS)
    return replace(
        recipe,
        name="tutoring",
        models={**recipe.models, "policy": Model(source="new", shape=shape, trained=True)},
        tasks=Tutoring(size=650),
        stages={"sft": imitation, "dpo": pairs},
        evaluation=Evaluation(verifier=Fields(fields=FIELDS), holdout=200, sampling=Sampling(max_tokens=64)),
    )
