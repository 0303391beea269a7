"""Choices: multiple-choice questions about sums, in five levels; the reward is the letter of the right option.

The bundled model first imitates worked answers, so that it answers some questions always, some never, and most at
times. A random letter is right once in four, the most frequent one three times in ten. Held-out questions are also
answered by samples.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.choice import Choice
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.choices import Choices
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def choices() -> Recipe:
    """140 updates of imitation, then 40 steps of 16 questions with 8 answers each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=1e-3))
    imitation = replace(imitation, batch=16, epochs=2.0, max_steps=140, learner=learner)
    stage = replace(
        rl_of(recipe),
        steps=40,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=64)),
        reward=Choice(extract=("hashes",)),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="choices",
        tasks=Choices(size=1500),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=stage.reward, samples=4),
    )
