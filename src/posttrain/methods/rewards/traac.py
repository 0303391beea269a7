r"""TRAAC: correct rollouts once more with the thoughts cut out that attention passes over, and lengths by difficulty.

Source: arXiv:2510.01581, and its release (joykirat18/TRAAC at 0bfea0a7). Each correct rollout whose thoughts are in
tags is compressed: steps of little attention from the end of the thoughts are cut, more of them the easier the task is
for the model, and the answer is sampled anew. Rollouts and compressed ones are shuffled into a group of the usual size.
The reward is 4 for a correct answer, a length reward among correct rollouts of the same class of difficulty, and 0.5
for one pair of think tags. GRPO with the std, clip 0.2 and 0.28, KL in the loss with weight 0.001.

    posttrain run traac tasks=mine.jsonl model=FOLDER    # columns: prompt, answer; optional: domain

The rule is the setting's; another one is `reward.parts.answer.correct=...`. Attention of the policy itself:
`rollout.attention_role=policy`. Without difficulty: `rollout.eviction.rates=[0.6,0.6,0.6]
reward.parts.answer.scales=[1,1,1]`. Where steps begin in your model's thoughts: `rollout.cues=[Wait, ...]`.

Differs: the release gives 0.25 for one pair of tags, in any order, and 0.25 for their order; here both are one part.
The reference is the model that the stage begins with; the release's is one that is served apart.

Measured here, on tables in place of a model (`docs/experiments/compressed_tables.py`, five seeds): with the reward of
length alone tasks of six needed steps are solved with .890 [.887, .893] and 1.81 [1.66, 1.95] trivial steps at the end;
with compressed rollouts .853 to .854 and 1.39 [1.21, 1.57] by attention that is a rule, 1.05 [.99, 1.11] by noisy
attention. Tasks of two needed steps have .19 to .20 trivial steps either way. So thoughts of hard tasks get shorter, at
a loss of accuracy. Without classes .776 trivial steps are left in hard tasks, at the same accuracy. On the
default setting, one run: 45.0 % of 200 held-out sums in 78 tokens after imitation, 56.0 % [49.1, 62.7] in 56 tokens
after TRAAC.

Not shown: shorter thoughts of a language model at equal accuracy. `docs/experiments/compressed_thoughts.py` is the
comparison, on sums of numbers of one digit, 30 steps of 6 tasks. Three of its five seeds were run, mean of 200 held-out
sums: 55.3 % in 74.7 tokens after imitation, 69.7 % in 57.1 by GRPO, 76.2 % in 54.7 by the reward of lengths alone,
72.8 % in 59.8 by TRAAC: -3.3 points [-22.0, +15.3] and +5.1 tokens [-1.5, +11.7] against lengths alone, +3.2 [-35.6,
+41.9] and +2.8 [-11.3, +16.8] against GRPO. No step was cut of any recorded rollout: U is above 0.8, or the share of
the steps is less than one. At U = 0.8 the shares are 0.12, 0.08 and 0.04, so that an easy task needs nine steps to lose
one, a medium task 13, a hard one 25; with four steps of an easy task U must be below 0.58. By a rule in place of
attention 3.5 % of the steps of easy tasks are cut, and it ends at 71.7 % in 57.4 tokens; without classes at 67.0 % in
58.7.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.penalties.kl import KL
from posttrain.components.rewards.class_length import ClassLength
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.sum import Sum
from posttrain.components.rollouts.compressed import Compressed
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import (
    every_group,
    keep_verifier,
    rollouts_of,
    sampled_of,
    sampling_of,
    with_models,
    with_stage,
)
from posttrain.recipes.tree import Recipe
from posttrain.settings.padded_thoughts import padded_thoughts

PARENT: Final = "grpo"
SETTING: Final = "padded_thoughts"
PAPER: Final = "arXiv:2510.01581"
ROWS: Final = ()
CHANGES: Final = ("reward",)  # lengths and tags count


def traac(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: compressed forms of correct rollouts in the groups, and rewards for length by difficulty."""
    recipe = keep_verifier(grpo(recipe or padded_thoughts()))
    stage = sampled_of(recipe)
    tags = Format(tags=("think",), alone=False, finished=False)
    stage = replace(
        stage,
        rollout=Compressed(n=rollouts_of(stage), sampling=sampling_of(stage)),
        reward=Sum(parts={"answer": ClassLength(correct=stage.reward), "tags": tags}, weights={"tags": 0.5}),
        filters=every_group(stage),
        advantage=GroupMean(),
        objective=PPOClip(clip_high=0.28),
        penalties={**stage.penalties, "kl": KL(coefficient=0.001)},
    )
    recipe = with_models(replace(recipe, name="traac"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
