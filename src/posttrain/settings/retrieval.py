"""Retrieval: a new model writes identifiers of 64 documents, first by imitation, then by pairs of identifiers.

It imitates identifiers after documents, after words of documents, and after a third of the queries; pairs are of all
queries, with negatives that are drawn from all documents alike. Held-out queries are answered without a trie;
`posttrain diagnose retrieval` has one.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.pairings.bands import Bands
from posttrain.components.rewards.match import Match
from posttrain.components.selections.paired import Paired
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.retrieval import CODES, WORDS, Retrieval
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import preference_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.sum_pairs import sum_pairs


def retrieval() -> Recipe:
    """60, 120 and 30 updates of imitation, then 60 steps on 32 pairs each."""
    recipe, imitation = sum_pairs(), sft_of(demonstrations())
    imitation = replace(
        imitation, batch=32, epochs=1000.0, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3))
    )
    verifier = Match(extract=("whole",))
    stage = preference_of(recipe)
    pairs = replace(
        stage,
        batch=32,
        epochs=1000.0,
        max_steps=60,
        selection=Paired(pairing=Bands(ends=(64,), counts=(6,)), reward=verifier),
        learner=replace(stage.learner, optimizer=AdamW(lr=1e-4)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, context=64, words=(*CODES, *(f" {word}" for word in WORDS)))
    return replace(
        recipe,
        name="retrieval",
        models={**recipe.models, "policy": Model(source="new", shape=shape, trained=True)},
        tasks=Retrieval(size=600),
        stages={
            "documents": replace(imitation, tasks=Retrieval(size=64, form="document"), max_steps=60),
            "pseudo_queries": replace(imitation, tasks=Retrieval(size=2000, form="pseudo"), max_steps=120),
            "queries": replace(imitation, limit=200, max_steps=30),
            "dpo": pairs,
        },
        evaluation=Evaluation(verifier=verifier, holdout=100, sampling=Sampling(max_tokens=12)),
    )
