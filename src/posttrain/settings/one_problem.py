"""One problem: a sum of five numbers is all that there is to learn from; other sums are held out.

The bundled model overfits it soon, so that the weights of the step with the best validation are kept.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import sft_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.best import Best
from posttrain.training.settings import Learning


def one_problem() -> Recipe:
    """60 steps on one sum of five numbers; validated and evaluated on sums of three to five."""
    recipe = demonstrations()
    best = Best(tasks=Arithmetic(size=100, seed=6, terms=(3, 5)), reward=Match(), every=5)
    learner = Learning(optimizer=AdamW(lr=2e-4))
    stage = replace(sft_of(recipe), batch=32, epochs=100_000.0, max_steps=60, best=best, learner=learner)
    recipe = replace(
        with_stage(recipe, stage),
        name="one_problem",
        tasks=Arithmetic(size=1, terms=(5, 5)),
        evaluation=Evaluation(tasks=Arithmetic(size=200, seed=5, terms=(3, 5)), by="answers", verifier=Match()),
    )
    return with_models(recipe, {"best": Model(source="role:policy")})
