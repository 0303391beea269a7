"""WebSailor (DUPO): GRPO in which copies of groups with both outcomes take the places of all others.

Source: arXiv:2507.02592, sections 3, 4 and A.4. Tasks that the policy solves in 8 of 8 rollouts are left out before.
Groups whose answers are all right or all wrong are removed, and random copies of the others of the same step fill their
places, so that no further rollouts are waited for. R = 0.1 format + 0.9 answer, normalized in groups of 8; the loss is
the mean over tokens; clip 0.2 and 0.28 (those of DAPO; the paper does not give them).

    posttrain run websailor tasks=mine.jsonl model=FOLDER    # columns: prompt, answer

`websailor_v2` is the recipe of the later report, without copies.

Differs: the setting's text tasks stand for search on the web; its data, obfuscated questions on graphs, and the judge
of answers are not here. A step without a group that has both outcomes is not learned from.

Measured here, with one learned number for the success on 64 prompts, most of whose groups are all wrong at first (20
seeds): 2,438 rollouts [2,302, 2,575] to a mean success of 0.7 with copies, 2,426 [2,292, 2,560] without the dropped
groups, 5,114 [4,734, 5,493] where DAPO samples again, all in 19 steps. The standard deviation of a step is 0.023,
0.022 and 0.016. With rewards by correctness copies are equal to dropping (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.filters.mixed import Mixed
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.rewards import Reward
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.sum import Sum
from posttrain.components.selections.unsolved import Unsolved
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.formatted_sums import formatted_sums
from posttrain.stages.rl.refill import Refill

PARENT: Final = "grpo"
SETTING: Final = "formatted_sums"
PAPER: Final = "arXiv:2507.02592"
ROWS: Final = (302,)
CHANGES: Final = ("reward",)


def websailor(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: groups with both outcomes only, copied to fill the step; format and answer as the reward."""
    recipe = keep_verifier(grpo(recipe or formatted_sums()))
    stage, most = rl_of(recipe), sampling_of(rl_of(recipe)).max_tokens
    correct = answer_of(stage.reward)
    stage = replace(
        stage,
        reward=Sum(parts={"answer": correct, "format": Format()}, weights={"answer": 0.9, "format": 0.1}),
        selection=Unsolved(reward=correct, n=8, max_tokens=most if isinstance(most, int) else 1024),
        filters={**every_group(stage), "mixed": Mixed()},
        refill=Refill(rounds=0, when_spent="copies"),
        objective=PPOClip(clip_low=0.2, clip_high=0.28),
    )
    return with_stage(replace(recipe, name="websailor"), stage)


def answer_of(reward: Reward) -> Reward:
    """The part of a sum that decides whether an answer is right; the reward itself if it is no sum."""
    if not isinstance(reward, Sum):
        return reward
    return reward.parts[reward.correct or next(iter(reward.parts))]
