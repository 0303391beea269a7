"""Principled replies: a model that writes short replies, and compares two of them by a principle with a letter.

It imitates replies that are polite or not and short or not, and comparisons of such replies; then polite replies are
rewarded. Held-out replies are correct that are polite and short. Demonstrations
are of both kinds and no right answers, so the audit of a reward model only measures.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.regex import Regex
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.principle_items import PrincipleItems
from posttrain.components.tasks.reviewed_replies import ReviewedReplies
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.reviewed_replies import REVIEWERS
from posttrain.stages.rl.reward_audit import MEASURED
from posttrain.training.settings import Learning


def principled_replies() -> Recipe:
    """120 steps of imitation, then 20 of 8 prompts with 8 replies each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    sources = {"replies": ReviewedReplies(size=1000, annotators=REVIEWERS), "items": PrincipleItems(size=3000)}
    imitation = replace(
        imitation,
        tasks=Mixture(sources=sources, shares={"replies": 1, "items": 3}),
        max_steps=120,
        learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3)),
    )
    stage = replace(
        rl_of(recipe),
        steps=20,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=40)),
        reward=Regex(pattern="please"),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
        audit=MEASURED,
    )
    return replace(
        recipe,
        name="principled_replies",
        tasks=ReviewedReplies(size=1000, annotators=REVIEWERS),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(holdout=100, verifier=Regex(pattern=r"^\s*please see [a-z]+$")),
    )
