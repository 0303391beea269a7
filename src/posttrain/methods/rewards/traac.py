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
a loss of accuracy. Without classes .776 trivial steps are left in hard tasks, at the same accuracy.

With a model (`docs/experiments/compressed_thoughts.py`, setting `padded_words`, five seeds, 30 steps of 8 tasks, 200
held-out sums): U is .61 to .72, and 9.0 % [3.7, 14.3] of the steps of easy tasks are cut, 3.8 % [2.9, 4.6] of others.
Unlike in the paper this does not help: after imitation 86.8 % in 50.6 tokens, by GRPO 86.5 % in 51.7, by the reward of
lengths alone 86.4 % in 47.3, by TRAAC 83.2 % in 49.2. Against lengths alone -3.2 points [-6.3, -0.1] and +2.0 tokens
[+0.3, +3.6], against GRPO -3.3 points [-6.5, -0.1] and -2.5 tokens [-6.4, +1.4]. The reward of lengths alone is shorter
than GRPO at equal accuracy (-4.4 tokens [-8.4, -0.5]). A likely reason: each step there builds on the one before, so
that a gap may teach to leave out needed steps. With one rate for all tasks others lose more steps, 11.0 % [8.6, 13.4]
against 8.2, and accuracy falls to 75.0 % [59.6, 90.4].

On the default setting, one run: 45.0 % of 200 held-out sums in 78 tokens after imitation, 56.0 % [49.1, 62.7] in 56
tokens after TRAAC. Nothing is cut there: with bytes as tokens and four heads the mean attention to all steps is nearly
equal (U .97 to .99 on 16 demonstrations with six to ten numbers, one model). At U = 0.8 the shares are 0.12, 0.08 and
0.04, so that an easy task needs nine steps to lose one, a medium task 13, a hard one 25; with four steps of an easy
task U must be below 0.58.
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
ROWS: Final = (128,)
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
