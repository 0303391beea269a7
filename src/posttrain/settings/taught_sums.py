"""Taught sums: the bundled model explains sums whose results it is given, to a student that is asked the sums alone.

The teacher first imitates explanations, which end with ``####``, as the bundled model has never seen a result in its
prompt, until most are right: wrong ones mislead the student, and a teacher who writes few others learns to write less.
The student is the bundled model as it is, which works out a part of the sums by itself.
Held-out explanations count where their last number is the result.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.teaching import Teaching
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.taught import Taught
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations


def taught_sums() -> Recipe:
    """An epoch of imitation (56 updates), then 20 steps of 8 tasks with 8 explanations each."""
    recipe = arithmetic()
    tasks = Taught(tasks=Arithmetic(size=1000, terms=(3, 4)), request="#### {answer}\n{question}", closing="\n####")
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, batch=16, learner=replace(imitation.learner, optimizer=AdamW(lr=5e-4)))
    stage = replace(
        rl_of(recipe),
        steps=20,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=64, temperature=0.7)),
        reward=Teaching(closing="\n####", between=" "),
    )
    recipe = with_models(recipe, {"student": Model(source="pebble")})
    return replace(
        recipe,
        name="taught_sums",
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Match(extract=("last_number",)), holdout=100),
    )
