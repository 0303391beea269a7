"""Sum pairs: the bundled model learns from pairs of workings of a sum, one right and one with a slip."""

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.components.schedules.constant import Constant
from posttrain.components.tasks.workings import Workings
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.tree import Recipe
from posttrain.stages.preference import PreferenceTraining
from posttrain.training.settings import Learning


def sum_pairs() -> Recipe:
    """The root of the preference settings: complete, and runnable as it is."""
    return Recipe(
        name="sum_pairs",
        models={"policy": Model(source="pebble", trained=True), "reference": Model(source="role:policy")},
        tasks=Workings(size=2000),
        stages={
            "dpo": PreferenceTraining(
                loss=DPO(),
                reducer=Sequences(),
                learner=Learning(optimizer=AdamW(lr=3e-4), schedule=Constant(warmup=0.1)),
            )
        },
        evaluation=Evaluation(verifier=Match()),
    )
