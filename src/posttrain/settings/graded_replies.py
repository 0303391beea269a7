"""Graded replies: the policy imitates replies to students of mixed quality, then is rewarded for what they should have.

Held-out replies are correct that have all three: the word "hint", the student's name and "why". Demonstrations
are no right answers, so the audit of a reward model only measures.
"""

from dataclasses import replace

from posttrain.components.annotators.missing import Missing
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.rubric import Rubric
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.graded_replies import GradedReplies
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.rl.reward_audit import MEASURED
from posttrain.training.settings import Learning


def graded_replies() -> Recipe:
    """At most 30 steps of imitation, then 40 of 8 prompts with 8 replies each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    imitation = replace(imitation, max_steps=30, learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3)))
    stage = replace(
        rl_of(recipe),
        steps=40,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=40)),
        reward=Rubric(),
        learner=Learning(optimizer=AdamW(lr=1e-4)),
        audit=MEASURED,
    )
    return replace(
        recipe,
        name="graded_replies",
        tasks=GradedReplies(annotators=(Missing(rate=0.3),)),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(holdout=100, verifier=Rubric()),
    )
