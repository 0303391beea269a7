"""RL-PLUS: demonstrations in the groups of rollouts, with a ratio to a mixture of policies and a bonus for exploration.

Source: Dong et al. 2025, arXiv:2508.00222, and its release: a group is 7 rollouts and one external solution, which the
verifier scores too, and the advantage is reward minus the mean of all 8, without a std. Own tokens have the weight
p / p_old, without clipping. External tokens have the ratio 4 p / (3 p_old + 1) and the advantage A (1 - p)^0.5. The sum
over all tokens and rows is divided by a constant, the most tokens of a completion; entropy bonus 0.001, no KL. The
paper has 1 / V where the release has the 1 of this ratio: `objective.demonstrated.uniform=0.004` for 250 tokens.

    posttrain run rl_plus tasks=mine.jsonl model=FOLDER    # columns: prompt, answer, completion

Where a whole group is correct, nothing is learned from it. Without demonstrations it is Dr. GRPO without clipping.

Differs: the demonstration is added to the setting's number of rollouts, and does not replace one of them. The entropy
bonus is summed as the loss is, where the code takes its mean over tokens. The paper's text is read from notes.

Measured here: against GRPO on two families (60 steps of 32 x 4, 5 seeds): held-out letters 0 % in every seed, as with
GRPO, and sums 70.5 % against 70.2 %; of all answers +0.1 points [-9.3, +9.5]. A demonstrated token that is very
unlikely has the weight 4 p, and is not learned. In a choice of four with descent by its gradient, a demonstrated one
reaches 1/2 from 0.1 after 28 updates with 1 / V, 50 as released, 123 with LUFFY's shape, and from 0.01 after 88, 246
and 240 (tests/components/objectives/test_multiple_importance.py, docs/experiments.md). On longer sums (40 steps,
5 seeds, 60 held-out tasks, 64 samples each) pass@1 rises from 8.1 to 14.4 %, with GRPO to 13.5 %: +0.9 points
[+0.2, +1.6]; pass@64 falls from 71.3 to 62.0 %, with GRPO to 59.3 %: both narrow, +2.7 points [-7.0, +12.3].
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.objectives.multiple_importance import MultipleImportance
from posttrain.components.objectives.unified import Unified
from posttrain.components.penalties.entropy import Entropy
from posttrain.components.reducers.constant import Constant
from posttrain.components.rollouts.demonstrated import Demonstrated
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.recipes.changes import every_group, rollouts_of, sampled_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.two_families import two_families

PARENT: Final = "grpo"
SETTING: Final = "two_families"
PAPER: Final = "arXiv:2508.00222"
ROWS: Final = (278,)


def rl_plus(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: demonstrations in the groups, two token weights, plain advantages, a sum over a constant."""
    recipe = with_rl(recipe or two_families())
    stage = sampled_of(recipe)
    sampling = sampling_of(stage)
    stage = replace(
        stage,
        rollout=Demonstrated(n=rollouts_of(stage), sampling=sampling),
        filters=every_group(stage),
        advantage=GroupMean(scale="none"),
        objective=ByOrigin(sampled=Unified(denominator="old"), demonstrated=MultipleImportance()),
        penalties={**stage.penalties, "entropy": Entropy(coefficient=0.001)},
        reducer=Constant(length=float(sampling.max_tokens), average=False),
    )
    return with_stage(replace(recipe, name="rl_plus"), stage)
