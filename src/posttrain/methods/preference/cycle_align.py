r"""CycleAlign: a black box ranks the policy's rollouts, shown what both agreed on before; the policy learns by RRHF.

Source: Hong et al. 2023, arXiv:2310.16271, of which abstracts alone could be read, and RRHF, arXiv:2304.05302. In each
cycle rollouts are sampled and ranked in one call by a model that sees demonstrations; the policy ranks them by its mean
log-probability; the longest common subsequence of both orders is a new demonstration, the oldest of more than four
leaving. The policy then learns the black box's order: the hinge of mean log-probabilities over all pairs, and the
likelihood of the best. The next cycle has new weights and new demonstrations.

    posttrain run cycle_align tasks=mine.jsonl model=FOLDER reward.role=ranker models.ranker.source=http://.../v1
    # columns: prompt, answer (to evaluate)

Without a black box the setting's reward ranks. Demonstrations that are given: `reward.static=[...]`; none of earlier
cycles: `reward.most=0`. Read ``agreement``, ``misordered_pairs``, and the held-out verifier: agreement alone is no
progress.

Differs: unverified. The agreement rule, the number of candidates (the setting's) and of demonstrations are our choice,
and the order that is learned is the black box's, not the agreement. A cycle is a step, of one optimizer.

Measured here: simulated rankers (20 seeds, `docs/experiments/cycles.py`): of the pairs among demonstrations 99.3 %
[98.5, 100] are right by agreement, 93.8 % [91.6, 95.9] with the black box's own orders; its rankings are right in 93.7,
92.6 and, with static demonstrations alone, 78.7 % of the pairs; the policy's in 96.8 % with each. Where both share a
bias, 85.0 and 81.5 % of the demonstrations are right, and 71.9, 71.4 and 64.9 % of the rankings, at an agreement of .83
against .90: agreement does not filter what both get wrong, as expected (docs/experiments.md). On the
default setting, five seeds, 100 held-out replies: 36.4 % [24.2, 48.6] have all that they should after imitation, 84.2 %
[75.4, 93.0] after CycleAlign, and 90.0 % [79.8, 100] after GRPO on the same ratings, a difference of -5.8 points
[-13.4, +1.8]. Of the pairs 31 to 38 % are misordered in the first five steps and 32 to 39 % in the last: what is
written gets better, the order of it does not. Where a cut reply may be the first, replies grow to the limit: one run
fell from 33 to 26 %.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.objectives.rrhf import RRHF
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.ranked import Ranked
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.ranked_replies import ranked_replies

PARENT: Final = "grpo"
SETTING: Final = "ranked_replies"
PAPER: Final = "arXiv:2310.16271"
ROWS: Final = (263,)
CHANGES: Final = ("reward",)  # the ranking takes the place of scores


def cycle_align(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: rollouts are ranked in one call, and the ranking is learned by RRHF."""
    recipe = keep_verifier(grpo(recipe or ranked_replies()))
    stage = rl_of(recipe)
    stage = replace(
        stage,
        reward=stage.reward if isinstance(stage.reward, Ranked) else Ranked(of=stage.reward),
        advantage=GroupMean(scale="none"),
        objective=RRHF(),
        reducer=Sequences(),
        filters=every_group(stage),
    )
    return with_stage(replace(recipe, name="cycle_align"), stage)
