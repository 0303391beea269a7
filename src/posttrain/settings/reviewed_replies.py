"""Reviewed replies: a judge learns Yes and No from feedback on replies, and the policy is rewarded by its log-odds.

Both are the bundled model. The judge imitates every annotator's label; the policy imitates replies and is rewarded for
one principle, "polite". Held-out replies are checked by code for the principle that their prompt is bound to.
Demonstrations are polite or not, and no right answers, so the audit of the judge only measures.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.annotators.feedback import Feedback
from posttrain.components.annotators.noise import Noise
from posttrain.components.annotators.several import Several
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.principle_logit import PrincipleLogit
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.routed import Routed
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.feedback_items import TEMPLATE, FeedbackItems
from posttrain.components.tasks.reviewed_replies import ReviewedReplies
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages.rl.reward_audit import MEASURED
from posttrain.training.settings import Learning

REVIEWERS: Final = (Several(parts=(Noise(rate=0.15, spread=0.0), Feedback(invented=0.1))),) * 3
"""Three annotators, wrong about a principle with probability .15; a tenth of their quotations are invented."""


def reviewed_replies() -> Recipe:
    """30 steps of imitation for the judge, 20 for the policy, then 20 of 8 prompts with 8 replies each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    imitation = replace(imitation, learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3)))
    items = FeedbackItems(tasks=ReviewedReplies(size=600, seed=2, annotators=REVIEWERS), evidence=0.0, similar=0.0)
    judge = replace(imitation, role="judge", tasks=items, epochs=4.0, max_steps=30)
    stage = replace(
        rl_of(recipe),
        steps=20,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=40)),
        reward=PrincipleLogit(principle="polite", bound=False, template=TEMPLATE, chat=False, words=(" Yes", " No")),
        learner=Learning(optimizer=AdamW(lr=3e-4)),
        audit=MEASURED,
    )
    checked = Routed(
        field="principle", parts={"polite": Regex(pattern="please"), "short": Regex(pattern=r"^\s*.{1,16}$")}
    )
    recipe = replace(
        recipe,
        name="reviewed_replies",
        tasks=ReviewedReplies(size=1000, annotators=REVIEWERS),
        stages={"judge": judge, "sft": replace(imitation, max_steps=20), "rl": stage},
        evaluation=Evaluation(holdout=100, verifier=checked),
    )
    return with_models(recipe, {"judge": Model(source="pebble", trained=True)})
