"""Pebble: how the bundled model was made, from random weights, by imitation of generated exercises.

    posttrain run pebble

gives the folder that ships as `pebble`, up to rounding on another machine. Its training tasks: `tasks/primer.py`. It is
evaluated on all tasks of the quickstart, so that none of them is trained on.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.schedules.linear import Linear
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.primer import Primer
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import sft_of, with_stage
from posttrain.recipes.tree import Checkpoints, Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def pebble() -> Recipe:
    """Imitation with a new model, 400,000 exercises, and a high learning rate that decays to 0."""
    recipe = demonstrations()
    learner = Learning(optimizer=AdamW(lr=3e-3, weight_decay=0.01), schedule=Linear(warmup=0.03))
    recipe = with_stage(recipe, replace(sft_of(recipe), batch=64, learner=learner))
    return replace(
        recipe,
        name="pebble",
        models={"policy": Model(source="new", shape=Decoder(), trained=True)},
        tasks=Primer(size=400_000),
        evaluation=Evaluation(tasks=arithmetic().tasks, holdout=2000, verifier=Match(), every=1000),
        checkpoints=Checkpoints(every_steps=500),
        threads=1,
    )
