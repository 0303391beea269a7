"""Guarded requests: seven categories of harmful requests to be refused, by reward models that learn from refusals.

After a short warm-up in which the bundled model sees refusals among requests that it fulfils, it refuses some of the
harmful requests. Training tasks are harmful, as many of each category (`tasks.rare` makes some of them rare); half of
the held-out ones are safe, so that refusals of these show by themselves (`accuracy_by_domain`, ``safe``). The reward is
the demonstration itself; methods of inverse RL put reward models in its place, whose audit only measures.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.guarded_requests import GuardedRequests
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.rl.reward_audit import MEASURED
from posttrain.training.settings import Learning

WARM_UP = GuardedRequests(size=2000, seed=1)
HELD_OUT = GuardedRequests(size=280, seed=2)


def guarded_requests() -> Recipe:
    """A warm-up of 80 steps of 32, then 30 steps of 14 tasks with 8 rollouts each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=2e-3))
    stage = replace(
        rl_of(recipe),
        steps=30,
        prompts=14,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=32)),
        reward=Match(extract=("whole",)),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
        audit=MEASURED,
    )
    warm_up = replace(imitation, tasks=WARM_UP, max_steps=80, epochs=2.0, learner=learner)
    return replace(
        recipe,
        name="guarded_requests",
        tasks=GuardedRequests(size=1000, which="harmful"),
        stages={"sft": warm_up, "rl": stage},
        evaluation=Evaluation(tasks=HELD_OUT, holdout=280, verifier=stage.reward),
    )
