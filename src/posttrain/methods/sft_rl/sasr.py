"""SASR: each step is either imitation or GRPO, by a coin whose bias follows the gradient norm of imitation. UNVERIFIED.

Source: Chen et al. 2025, arXiv:2505.13026. Confirmed are a warm-up of imitation, with the sum of -log p over the tokens
of a demonstration, and that the share of imitation is decided step by step from gradient norms, at first mostly
imitation. The formula of the share is NOT the paper's but a guess (`balances/coin`): do not take its results for those
of the paper.

    posttrain run sasr tasks=mine.jsonl experts=solutions.jsonl    # columns: prompt, answer; prompt, completion

The share returns after a drift of the policy only with `balance.refresh`, which measures the norm again: the steps of
GRPO leave it as it is. A step of imitation samples nothing.

Differs: the switch is unverified. The warm-up takes a quarter of the stage's steps, and is part of the same stage, with
the same optimizer.

Measured here, of the unverified switch: two families (60 steps, 15 of them warm-up, 5 seeds): held-out letters 13.1 %
against GRPO's 0, +13.1 points [1.5, 24.8], sums 61.0 % against 70.2 %, of all answers +1.5 points [-12.3, +15.3], with
half the sampled tokens. In the first half after the warm-up 35 % of the steps imitate, in the second 25 %. CHORD has
20.0 % of the letters, and SFT with GRPO after it 90.0 % (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.balances.coin import Coin
from posttrain.components.experts.stream import Stream
from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.reducers.by_origin import ByOrigin as ByOriginReducer
from posttrain.components.reducers.constant import Constant
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.two_families import two_families

PARENT: Final = "grpo"
SETTING: Final = "two_families"
PAPER: Final = "arXiv:2505.13026"
ROWS: Final = (75,)


def sasr(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a stream of experts, and a coin between the two."""
    recipe = grpo(recipe or two_families())
    stage = rl_of(recipe)
    stage = replace(
        stage,
        experts=Stream(batch=stage.prompts),
        balance=Coin(warmup=max(stage.steps // 4, 1)),
        objective=ByOrigin(sampled=stage.objective),
        reducer=ByOriginReducer(sampled=stage.reducer, demonstrated=Constant(length=1.0)),
    )
    return with_stage(replace(recipe, name="sasr"), stage)
