"""Think-RM: a judge with long thoughts, trained by rule rewards, whose verdicts on pairs are the policy's advantages.

Source: Hong et al. 2025, arXiv:2505.16265, and its release. Three stages: the judge imitates long thoughts; it is
reinforced for the verdict of the label, 1 or 0 with no reward of the format (``judge_rl.reward.parser=strength`` scores
the strength of the preference, one half for the right side); then the policy is reinforced with the judge's verdict on
every two rollouts of a prompt (`rewards/duels`) by the advantage of `advantages/pairwise`, with a KL of 1e-4.

    posttrain run think_rm tasks=prompts.jsonl judge.tasks.tasks=pairs.jsonl judge_rl.tasks.tasks=pairs.jsonl
    # prompts.jsonl: prompt; pairs.jsonl: prompt, chosen, rejected, thought, and strength (1 to 3) for parser=strength

``rl.reward.both_orders=true`` requests every verdict twice and takes the mean of both orders, which removes a
preference for a place; the release does not. ``rl.reward.by_length=true`` divides by the length of the reply, as the
release does for binary verdicts.

Differs: a stored list of items that the release skips is not published. Sizes and learning rates are the setting's;
the release has groups of 4 for the policy and 8 for the judge. A reply without a verdict is a tie in the default
setting, as there, and counted; the reward's own default is an error.

Measured here, on a bandit of six arms with a judge that prefers the first (a bias of 1.5 std of its noise; 12
seeds; `docs/experiments/pairwise_bandit.py`): expected quality, of at most 2, with binary verdicts 1.820 [1.795, 1.845]
by one order and 1.934 [1.929, 1.940] by both; with graded ones 1.888 [1.878, 1.898] and 1.965 [1.963, 1.967]. Without a
bias, 1.944 and 1.962, 1.955 and 1.967. In the default run texts without
content tie with 16 of 16 right answers, half of each counted (50 %): the judge has no verdict on what is no sum.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.advantages.pairwise import Pairwise
from posttrain.components.penalties.kl import KL
from posttrain.components.rewards.right_verdict import RightVerdict
from posttrain.components.rollouts.independent import Independent
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rl_of, sampling_of, with_models, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.written_sums import written_sums
from posttrain.stages.sft import SFT

PARENT: Final = "grpo"
SETTING: Final = "written_sums"
PAPER: Final = "arXiv:2505.16265"
ROWS: Final = (224,)


def think_rm(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a stage that reinforces the judge, pairwise advantages, a small KL."""
    recipe = grpo(recipe or written_sums())
    stage = rl_of(recipe)
    imitated = next((s for s in recipe.stages.values() if isinstance(s, SFT) and s.role == "judge"), None)
    if imitated is None or imitated.tasks is None:
        raise UserError(
            f"recipe '{recipe.name}' has no sft stage with role=judge and items of its own, from which the judge "
            "learns; add one, with tasks of the kind judge_items, or start from the setting written_sums"
        )
    thought = replace(sampling_of(stage), max_tokens=getattr(stage.reward, "sampling", sampling_of(stage)).max_tokens)
    judge = replace(
        stage,
        rollout=Independent(n=8, sampling=thought, role="judge"),
        reward=RightVerdict(),
        advantage=GroupMean(),
        penalties={},
        tasks=imitated.tasks,
    )
    changed = replace(
        stage,
        filters=every_group(stage),
        advantage=Pairwise(),
        penalties={**stage.penalties, "kl": KL(coefficient=1e-4)},
    )
    recipe = with_models(replace(recipe, name="think_rm"), {"reference": Model(source="role:policy")})
    recipe = with_stage(recipe, changed)
    return with_stages_before(recipe, {"judge_rl": judge}, changed)
