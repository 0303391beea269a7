"""Topics: lists of words that belong to a topic, with a rubric; a warm-up on lists that are copied or incomplete.

The bundled model does not understand English. In the warm-up it imitates, on other topics, the list in front of the
question where there is one, and two of the six words where there is none.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.rubric import Rubric
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.topics import Topics
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def topics() -> Recipe:
    """60 updates of imitation, then 40 steps of 16 topics with 8 answers each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    warmup = replace(
        imitation,
        tasks=Topics(size=1000, shown=0.5, seed=1),
        batch=16,
        max_steps=60,
        learner=replace(imitation.learner, optimizer=AdamW(lr=1e-3)),
    )
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=48)),
        reward=Rubric(),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="topics",
        tasks=Topics(size=60),
        stages={"lesson": warmup, "rl": stage},
        evaluation=Evaluation(holdout=20, correct_at=0.5, verifier=stage.reward),
    )
