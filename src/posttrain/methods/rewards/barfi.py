"""BARFI: weights of auxiliary rewards, and a discount, that are learned so that the primary reward rises.

Source: Gupta et al. 2023, arXiv:2310.19007, of which only abstracts and summaries could be read. A policy gradient
learns from a weighted sum of rewards; the weights follow the derivative of the primary reward through what the policy
learns from them (`stages/outer`).

    posttrain run barfi tasks=mine.jsonl model=FOLDER 'outer.weights={correct: 1, bonus: 0.3}' \
        'outer.reward={kind: sum, parts: {correct: match, bonus: {kind: regex, pattern: "Step"}}}'
    # columns: prompt, answer
    posttrain run barfi outer.learned=false                     # the weights at the start, for ever
    posttrain diagnose reward_weights misleading helpful        # the same on tables, exact

By default the auxiliary reward is for answers that end in 7, which is misleading.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.sum import Sum
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.outer import Outer

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2310.19007"
ROWS: Final = ()


def barfi(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a policy gradient on weighted rewards, and an outer level that learns the weights."""
    recipe = keep_verifier(grpo(recipe or arithmetic()))
    stage = rl_of(recipe)
    reward = stage.reward
    if not isinstance(reward, Sum):
        reward = Sum(parts={"correct": reward, "bonus": Regex(pattern=r"7\s*$")}, weights={"bonus": 0.3})
    primary = reward.correct or next(iter(reward.parts))
    outer = Outer(
        rollout=stage.rollout,
        reward=reward,
        reducer=stage.reducer,
        primary=primary,
        weights={name: reward.weights.get(name, 1.0) for name in reward.parts},
        steps=max(1, stage.steps // 3),
        prompts=stage.prompts,
        outer_prompts=stage.prompts,
        learner=stage.learner,
        tasks=stage.tasks,
    )
    stages = {"outer" if own is stage else name: outer if own is stage else own for name, own in recipe.stages.items()}
    return replace(recipe, name="barfi", stages=stages)
