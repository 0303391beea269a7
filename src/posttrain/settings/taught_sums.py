"""Taught sums: the bundled model explains sums whose results it is given, to a student that is asked the sums alone.

The teacher first imitates explanations, which end with ``####``, as the bundled model has never seen a result in its
prompt. Half of them are derivations, the other half the bare result, so that reinforcement has both to choose from.
The student is the bundled model as it is, which works out a part of the sums by itself. Held-out explanations count
where their last step has the result: the bare result does not.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.gated import Gated
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.regex import Regex
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

DERIVED = Gated(reward=Match(extract=("last_number",)), gate={"derived": Regex(pattern=r"=-?\d+\s*####")})
"""Whether an explanation's last step has the solution."""


def taught_sums() -> Recipe:
    """Four epochs of imitation (225 updates), then 20 steps of 8 tasks with 8 explanations each."""
    recipe = arithmetic()
    tasks = Taught(
        tasks=Arithmetic(size=1000, terms=(3, 3)), request="#### {answer}\n{question}", closing="\n####", stated=0.5
    )
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, batch=16, epochs=4.0, learner=replace(imitation.learner, optimizer=AdamW(lr=5e-4)))
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
        evaluation=Evaluation(verifier=DERIVED, holdout=100),
    )
