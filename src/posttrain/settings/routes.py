"""Routes: a new model of 200k weights imitates routes of a planner, of which one in twenty passes every check."""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.route import Route
from posttrain.components.schedules.cosine import Cosine
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.routes import Routes
from posttrain.datasets.routes import CHECKS
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

WORDS: Final = (
    *(f"{name}: {word}\n" for name in CHECKS for word in ("success", "fail")),
    *(f"<{budget}\n" for budget in range(6, 15)),
)
"""One token each."""


def routes() -> Recipe:
    """A new decoder, and imitation of all routes."""
    recipe = demonstrations()
    learner = Learning(optimizer=AdamW(lr=3e-3), schedule=Cosine(warmup=0.05))
    stage = replace(sft_of(recipe), batch=32, epochs=6.0, learner=learner)
    return replace(
        recipe,
        name="routes",
        models={
            "policy": Model(source="new", shape=Decoder(layers=2, width=64, mlp_width=192, words=WORDS), trained=True)
        },
        tasks=Routes(size=3000),
        stages={"sft": stage},
        evaluation=Evaluation(verifier=Route(), holdout=200, samples=4, sampling=Sampling(max_tokens=8)),
    )
