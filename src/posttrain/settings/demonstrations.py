"""Demonstrations: the bundled model imitates worked solutions of sums of three or four numbers."""

from posttrain.components.objectives.likelihood import Likelihood
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.tokens import Tokens
from posttrain.components.rewards.match import Match
from posttrain.components.schedules.cosine import Cosine
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.tree import Recipe
from posttrain.stages.sft import SFT
from posttrain.training.settings import Learning


def demonstrations() -> Recipe:
    """The base of the imitation settings: complete, and runnable as is."""
    return Recipe(
        name="demonstrations",
        models={"policy": Model(source="pebble", trained=True)},
        tasks=Arithmetic(size=2000, terms=(3, 4)),
        stages={
            "sft": SFT(
                objective=Likelihood(),
                reducer=Tokens(),
                learner=Learning(optimizer=AdamW(lr=2e-4), schedule=Cosine(warmup=0.05)),
            )
        },
        evaluation=Evaluation(verifier=Match()),
    )
