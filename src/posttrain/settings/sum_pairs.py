"""Sum pairs: the bundled model learns from pairs of solutions of a sum, one correct and one with a slip."""

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.preferences.dpo import DPO
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.components.schedules.constant import Constant
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.tree import Recipe
from posttrain.stages.preference import PreferenceTraining
from posttrain.training.settings import Learning


def sum_pairs() -> Recipe:
    """The base of the preference settings: complete, and runnable as is."""
    return Recipe(
        name="sum_pairs",
        models={"policy": Model(source="pebble", trained=True), "reference": Model(source="role:policy")},
        tasks=WorkedSolutions(size=2000),
        stages={
            "dpo": PreferenceTraining(
                loss=DPO(),
                reducer=Sequences(),
                learner=Learning(optimizer=AdamW(lr=3e-4), schedule=Constant(warmup=0.1)),
            )
        },
        evaluation=Evaluation(verifier=Match()),
    )
