"""Guided letters: sums whose answer is spelt in letters; the policy hardly ever finds one, a guide finds some.

The tasks are the letters of `two_families`. The policy imitates for a few updates, after which it solves about one task
in fifty; a copy of the bundled model imitates for longer in the role ``taught``, and is frozen as the role ``guide``.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.spelt import Spelt
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def guided_letters() -> Recipe:
    """20 updates of the policy and 45 of the guide, then 60 steps of 16 tasks with 4 rollouts each."""
    recipe = arithmetic()
    imitation = replace(sft_of(demonstrations()), epochs=2.0, max_steps=20, learner=Learning(optimizer=AdamW(lr=1e-3)))
    stage = replace(
        rl_of(recipe),
        steps=60,
        rollout=Independent(n=4, sampling=Sampling(max_tokens=32)),
        learner=Learning(optimizer=AdamW(lr=4e-4)),
    )
    return replace(
        recipe,
        name="guided_letters",
        models={
            **recipe.models,
            "taught": Model(source="pebble", trained=True),
            "guide": Model(source="role:taught"),
        },
        tasks=Spelt(tasks=Arithmetic(size=1200, seed=1, terms=(2, 2), digits=(2, 2), operators="+")),
        stages={"sft": imitation, "teaching": replace(imitation, role="taught", max_steps=45), "rl": stage},
        evaluation=Evaluation(holdout=200, verifier=Match()),
    )
