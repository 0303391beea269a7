"""Programs: the bundled model writes small programs, and is rewarded for those with the expected output.

It was not trained on programs, so it imitates a few first. Programs are in bash, which starts fastest;
``tasks.languages=[bash,lua,perl,python]`` adds more languages.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.io_tests import IOTests
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.programs import Programs
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations


def programs() -> Recipe:
    """60 steps of imitation, then 30 of reinforcement, 8 tasks with 8 programs each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, batch=16, max_steps=60, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=30,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=48)),
        reward=IOTests(language="bash"),
    )
    return replace(
        recipe,
        name="programs",
        tasks=Programs(size=600),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=IOTests(language="bash"), holdout=60, every=10),
    )
