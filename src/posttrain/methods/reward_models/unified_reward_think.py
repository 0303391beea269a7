"""UnifiedReward-Think: a judge imitates thoughts, then its own right verdicts, and is reinforced on its wrong ones.

Source: arXiv:2503.03318 and its release. After the cold start the judge answers every item once. Items that it answers
rightly are imitated in its own words (rejection sampling); GRPO gets the others, those without a verdict included
(`selections/routed`). The reward is the sum of accuracy, the text of the first answer tag (without a tag the whole
reply) being exactly the label, and of format, a thought and then an answer from the start, both 1. Eight replies, a KL
of 0.04 by k3, the mean over the tokens of a reply and then over replies, and 1e-4 added to the standard deviation.

    posttrain run unified_reward_think tasks.tasks=pairs.jsonl    # columns: prompt, chosen, rejected, thought

The order of the candidates is drawn by item; the release takes the data's (``tasks.order=as_given``). With
``order=both`` every pair is asked in both, which the held-out items of the default setting are.

Differs: candidates are texts, where the release has images, videos and answers; the labels are letters, where it has
sentences (``tasks.label=sentence``). The wrong items are not answered again while the judge learns, as there.

Measured here, on a logistic judge of pairs of lists of eight numbers (5 seeds; `docs/experiments/routed_judge.py`):
accuracy on hard pairs 69 % after the cold start and 79 % after rejection sampling; 20 steps of GRPO on all items then
give 83 %, 300 give 92 %. On the wrong items alone, 4 % of the pool, they give 56 % and 53 %: nothing holds the judge to
what it answered rightly, and the KL of 0.04 is too weak for it. Groups without an advantage: 55 % against 59 % with 20
steps, 91 % against 75 % with 300. The paper's gain does not show here; it needs a pool whose wrong items are
many, or fewer steps.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.right_verdict import RightVerdict
from posttrain.components.rewards.sum import Sum
from posttrain.components.selections.routed import Routed
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import (
    every_group,
    keep_verifier,
    rl_of,
    sampling_of,
    sft_of,
    with_models,
    with_stage,
    with_stages_before,
)
from posttrain.recipes.tree import Recipe
from posttrain.settings.compared_sums import compared_sums

PARENT: Final = "grpo"
SETTING: Final = "compared_sums"
PAPER: Final = "arXiv:2503.03318"
ROWS: Final = (41,)
FORM: Final = r"(?s)^<think>.*</think>\s*<answer>.*</answer>"


def unified_reward_think(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: rejection sampling before it, only wrongly answered items in it, a reward for the form."""
    recipe = keep_verifier(grpo(recipe or compared_sums()))
    stage, cold_start = rl_of(recipe), sft_of(recipe)
    accuracy = RightVerdict(parser="first_tag")
    answering = Routed(reward=accuracy, max_tokens=sampling_of(stage).max_tokens)
    changed = replace(
        stage,
        selection=replace(answering, keep="wrong"),
        reward=Sum(parts={"accuracy": accuracy, "format": Regex(pattern=FORM)}),
        filters=every_group(stage),
        advantage=GroupMean(epsilon=1e-4),
        reducer=Sequences(),
        penalties={**stage.penalties, "kl": KL(coefficient=0.04)},
    )
    recipe = with_stage(replace(recipe, name="unified_reward_think"), changed)
    # A trained copy is made once, so that both stages see the answers of the same model; nothing trains it.
    roles = {"reference": Model(source="role:policy"), "router": Model(source="role:policy", trained=True)}
    rejection = replace(cold_start, selection=answering, tasks=stage.tasks, skip=0, limit=None)
    return with_stages_before(with_models(recipe, roles), {"rejection": rejection}, changed)
