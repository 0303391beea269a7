"""Mixed quality: sums with demonstrations from two sources, a fifth of them right and the others off by one.

The domain of a task is its source, ``expert`` or ``other``. Imitation of all of them teaches what the majority does.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.schedules.cosine import Cosine
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.slipped_sums import SlippedSums
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

EXPERT = Arithmetic(size=480, terms=(2, 3))
OTHER = SlippedSums(tasks=Arithmetic(size=1920, seed=1, terms=(2, 3)))


def mixed_quality() -> Recipe:
    """Imitation of 2,400 sums of two or three numbers, 480 of them right; held-out answers are greedy."""
    recipe = demonstrations()
    learner = Learning(optimizer=AdamW(lr=1e-3), schedule=Cosine(warmup=0.05, final=0.1))
    stage = replace(sft_of(recipe), epochs=2.0, learner=learner)
    return replace(
        with_stage(recipe, stage),
        name="mixed_quality",
        tasks=Mixture(sources={"expert": EXPERT, "other": OTHER}, domains="source"),
        evaluation=Evaluation(by="answers", holdout=200, verifier=Match()),
    )
