"""RewardAnything: a judge that scores several responses by the principle in its prompt, reinforced for their order.

Source: Yu et al. 2025, arXiv:2506.03318, and its release, which has the rewards and not the training. An item shows a
principle, a prompt and all responses under masked names in a drawn order (`tasks/ranking_items`); the judge thinks and
writes scores and a ranking in JSON. GRPO rewards the weighed share of pairs whose scores are in the gold order, and the
form (`rewards/ranked_scores`). The trained judge scores the rollouts of a policy in one call for each group, by any
principle (`rewards/listwise`).

    posttrain run reward_anything tasks.tasks=mine.jsonl    # columns: prompt, principle, candidates, gold (numbers)

Differs: the weight of the form, the size of groups and the learning rate are not published; those here are ours, the
setting's. Three faults of the release are not copied: its order reward is 1 for a reply that scores fewer than two
responses, one order of the responses is used for all items, and its check of the ranking stops with an error.

Measured here, on a tabular judge of three numbers and three principles, 200 steps (5 seeds;
`docs/experiments/ordered_scores.py`): pairs in order 0.955 [0.952, 0.959] by the order of all pairs and 0.919 [0.913,
0.925] by the best alone; without the principle in the prompt 0.649, and 0.503 [0.486, 0.521] where principles
conflict, which is chance. With the release's order reward of 1 for an empty reply 0.997 [0.996, 0.998] of the replies
are empty in the end, without it 0.001. One seed only, the default setting: all three numbers in
order in 18.3 % [10.6, 29.9] of held-out items after imitation and 20.0 % [11.8, 31.8] at the end, no difference that it
can show.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.ranked_scores import RankedScores
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.scored_numbers import scored_numbers

PARENT: Final = "grpo"
SETTING: Final = "scored_numbers"
PAPER: Final = "arXiv:2506.03318"
ROWS: Final = (215,)


def reward_anything(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the order of a judge's scores and the form of its reply are the reward."""
    recipe = keep_verifier(grpo(recipe or scored_numbers()))
    return with_stage(replace(recipe, name="reward_anything"), replace(rl_of(recipe), reward=RankedScores()))
