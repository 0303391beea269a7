"""Greetings: a policy imitates greetings of mixed quality, and is rewarded by a judge with six rules, some of them bad.

The judge is code that calls bad what has a rule (`rewards/by_rules`): it forbids two harmless words and does not know
five of eight faults. Held-out greetings are correct without any of the eight. A
demonstration is no right answer here, so the audit of a reward model (`refined_preferences`) only measures.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.by_rules import ByRules
from posttrain.components.rollouts.independent import Independent
from posttrain.components.selections.optimized_rules import DETECTING
from posttrain.components.tasks.greetings import Greetings
from posttrain.datasets.greetings import FAULTS
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.rl.reward_audit import MEASURED
from posttrain.training.settings import Learning


def greetings() -> Recipe:
    """60 steps of imitation, then 40 of 8 requests with 8 greetings each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    imitation = replace(
        imitation, epochs=4.0, max_steps=60, learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3))
    )
    stage = replace(
        rl_of(recipe),
        steps=40,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=40)),
        reward=ByRules(rules=DETECTING),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
        audit=MEASURED,
    )
    return replace(
        recipe,
        name="greetings",
        tasks=Greetings(size=2000),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(holdout=100, verifier=ByRules(rules=FAULTS, own=False)),
    )
