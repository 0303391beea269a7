"""Missed sums: arithmetic with words of reasoning, and a verifier that misses three correct answers in ten.

The bundled model first imitates worked solutions that have words such as "wait" before some steps; the words are no
help. In reinforcement each correct rollout counts as wrong with probability 0.3. The reward for the words is recorded,
with weight 0. Held-out answers are scored without errors.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.noisy import Noisy
from posttrain.components.rewards.phrases import Phrases
from posttrain.components.rewards.raised import Raised
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.phrased import WORDS, Phrased
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def missed_sums() -> Recipe:
    """60 updates of imitation, then 40 steps of 16 tasks with 4 rollouts each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, batch=16, max_steps=60, learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3)))
    missed = Noisy(of=Match(), false_positive=0.0, false_negative=0.3, per="rollout")
    words = Phrases(phrases=WORDS, needed=4, after=None)
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Independent(n=4, sampling=Sampling(max_tokens=80)),
        reward=Raised(of=missed, by=words, weight=0.0),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="missed_sums",
        tasks=Phrased(tasks=recipe.tasks),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Match()),
    )
