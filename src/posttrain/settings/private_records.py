"""Private records: adapters on the bundled model learn records of people, some of which are canaries."""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.schedules.constant import Constant
from posttrain.components.tasks.records import Records
from posttrain.evaluation.settings import Evaluation
from posttrain.models import LoRA, Model
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def private_records() -> Recipe:
    """Four epochs of imitation with adapters of rank 4, in batches of 64; held-out records are measured by loss."""
    recipe = demonstrations()
    learner = Learning(optimizer=AdamW(lr=1e-2), schedule=Constant())
    return replace(
        recipe,
        name="private_records",
        models={"policy": Model(source="pebble", trained=True, lora=LoRA(rank=4, alpha=8.0))},
        tasks=Records(),
        stages={"sft": replace(sft_of(recipe), reducer=Sequences(), batch=64, epochs=4.0, learner=learner)},
        evaluation=Evaluation(by="loss"),
    )
