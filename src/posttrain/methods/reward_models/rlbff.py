"""RLBFF: a judge of binary principles from feedback that annotators agree on, then GRPO by its log-odds.

Source: "RLBFF: Binary Flexible Feedback", arXiv:2509.21319; the abstract, a detailed note and a model card were read.
Principles with Yes or No are taken from several annotators' feedback on a response; kept are those with a quotation as
evidence (above 60 of 100) that every annotator has (similarity above 0.8; `tasks/feedback_items`). The judge learns the
one word by cross-entropy. Each prompt is then bound to a principle, which the policy does not see, and GRPO's reward is
log p(Yes) - log p(No) of the judge for it (`rewards/principle_logit`).

    posttrain run rlbff tasks=prompts.jsonl judge.tasks.tasks=feedback.jsonl
    # prompts.jsonl: prompt, principle; feedback.jsonl: prompt, completion, feedback (a list, see feedback_items)

`CHANGES`: the judge's items are what the method filters.

Differs: the extraction of principles by a model is the data's. Labels of matched principles must agree, and a response
with one annotator is left out: both are ours. The generative judge, which reasons and is trained by GRPO, is left out;
the paper's scalar judge is the better one at following principles. Sizes and learning rates are the setting's.

Measured here, on a logistic judge of 200 labels of three annotators (5 seeds; `docs/experiments/flexible_feedback.py`):
with a noise of 15 % labels are true in 0.843 [0.823, 0.863], with evidence alone in 0.851, with consensus in 0.976
[0.963, 0.989], and P(Yes) is 0.221, 0.213 and 0.125 [0.116, 0.134] from the truth. Another principle reverses all pairs
in all three, so the better labels do not show there; with a noise of 35 % every annotator's labels reverse 0.900 and
consensus 1.000. Bradley and Terry without a principle reverse none, 0.500. A policy with a principle for each prompt
writes 0.989 polite and 0.983 short replies, one that is always asked for polite ones 0.995 and 0.205 [0.000, 0.752].
One seed only, the default setting: held-out replies that follow the principle of their prompt are
33 % after imitation and 100 % at the end. Texts without content outrank 7 of 16 demonstrations, which are polite or
not: the setting's audit only measures.
"""

from dataclasses import replace
from typing import Any, Final

from posttrain.components.rewards.principle_logit import PrincipleLogit
from posttrain.components.tasks.feedback_items import FeedbackItems
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.reviewed_replies import reviewed_replies
from posttrain.stages.sft import SFT

PARENT: Final = "grpo"
SETTING: Final = "reviewed_replies"
PAPER: Final = "arXiv:2509.21319"
ROWS: Final = (161,)
CHANGES: Final = ("tasks",)


def rlbff(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the judge learns what annotators agree on, and each prompt has a principle of its own."""
    recipe = keep_verifier(grpo(recipe or reviewed_replies()))
    stage = rl_of(recipe)
    name, judge = next(
        ((n, s) for n, s in recipe.stages.items() if isinstance(s, SFT) and s.role == "judge"), ("", None)
    )
    if judge is None or not isinstance(judge.tasks, FeedbackItems):
        raise UserError(
            f"recipe '{recipe.name}' has no sft stage with role=judge and tasks of the kind feedback_items, from which "
            "the judge learns; add one, or start from the setting reviewed_replies"
        )
    defaults = FeedbackItems(tasks=judge.tasks.tasks)
    items = replace(judge.tasks, evidence=defaults.evidence, similar=defaults.similar)
    asked: Any = stage.reward if isinstance(stage.reward, PrincipleLogit) else PrincipleLogit()
    stages = {**recipe.stages, name: replace(judge, tasks=items)}
    recipe = replace(recipe, name="rlbff", stages=stages)
    return with_stage(recipe, replace(stage, reward=replace(asked, bound=True)))
