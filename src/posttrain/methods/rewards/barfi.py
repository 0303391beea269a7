r"""BARFI: weights of auxiliary rewards, and a discount, that are learned so that the primary reward rises.

Source: Gupta et al. 2023, arXiv:2310.19007, of which only abstracts and summaries could be read. A policy gradient
learns from a weighted sum of rewards; the weights follow the derivative of the primary reward through what the policy
learns from them (`stages/outer`).

    posttrain run barfi tasks=mine.jsonl model=FOLDER 'outer.weights={correct: 1, bonus: 0.3}' \
        'outer.reward={kind: sum, parts: {correct: match, bonus: {kind: regex, pattern: "Step"}}}'
    # columns: prompt, answer
    posttrain run barfi outer.learned=false                     # the weights at the start, for ever
    posttrain diagnose reward_weights misleading helpful        # the same on tables, exact

By default the auxiliary reward is for answers that end in 7, which is misleading; its weight begins at 0.3.

Differs: what `stages/outer` states: weights that do not depend on the state, an inner level that is not run to its end,
no stored data. The original's starting weights and regularizers could not be checked.

Measured here over five seeds, on a table of three arms that are right with probability 1, 0.9 and 0, with weights
learned from sampled groups (`docs/experiments/weighted_arms.py`). With a bonus for the second arm, 85.2 % [84.5, 85.8]
are right without it, 84.3 % [83.6, 85.0] with the fixed sum, and 96.8 % [96.2, 97.5] with weights learned from
rightness alone, where that of the bonus becomes -4.8. Learning is local: from the sum it stays at the second arm,
88.0 % [87.3, 88.6], and the weight of the bonus grows to 5.3; from 0.3 it is 91.6 % [85.8, 97.3], as the seeds differ.
A helpful bonus is used from each start, 97.0 %. Most of the gain is that weights grow against the decay, which controls
show in the exact form (`posttrain diagnose reward_weights`).

In a corridor whose heuristic is wrong in half of its cells (`docs/experiments/shaped_corridor.py`, five seeds), the sum
of both rewards reaches the end in 0.6 % [-0.4, 1.6] of the episodes, the heuristic as a potential in 99.0 [98.1, 99.9],
the primary reward alone in 99.0 [98.4, 99.5]. Weights by finite differences, from the primary reward alone, reach it in
99.4 [99.0, 99.8], that of the heuristic at 0.06 [-0.04, 0.16]; from the sum three of five seeds escape.

The default run (five seeds, 70 s on a core): 20.5 % of held-out sums are right before it and 82.8 % [80.8, 84.8] after
it, as without the bonus (-0.1 points [-0.6, 0.4]). Its weight ends at 0.32 [-0.43, 1.07], beside 3.12 [3.00, 3.23] for
right answers. That is no merit of the learned weights here: with a fixed weight of 0.3 it is 82.6 % [79.8, 85.4], with
one of 3 81.9 % [78.0, 85.8]. After 12 of its 33 steps (`docs/experiments/learned_bonus.py`) it is 82.3 % [80.2, 84.4],
+1.0 points [0.6, 1.4] from no bonus, as the weight of right answers is 2.03 then, and 81.8 and 82.1 % with fixed ones.
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
ROWS: Final = (188,)


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
        audit=stage.audit,
        tasks=stage.tasks,
    )
    stages = {"outer" if own is stage else name: outer if own is stage else own for name, own in recipe.stages.items()}
    return replace(recipe, name="barfi", stages=stages)
