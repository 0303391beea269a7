"""Rewards from data: sums with answers, pairs and demonstrations, of which a reward is made before reinforcement.

The tasks have all that a reward can be inferred from, so that methods differ in what they take. Held-out answers are
compared with the reference. The audit of a reward that is learned from them only measures (``audit.most_fooled`` is 1):
some are fooled (`outcome_reward`, `demonstration_reward`).
"""

from dataclasses import replace

from posttrain.components.rewards.match import Match
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.rl.reward_audit import MEASURED


def rewards_from_data() -> Recipe:
    """25 steps of reinforcement on 2,000 sums."""
    recipe = arithmetic()
    return replace(
        recipe,
        name="rewards_from_data",
        tasks=WorkedSolutions(size=2000, terms=(2, 3), rejected="unworked"),
        stages={"rl": replace(rl_of(recipe), steps=25, audit=MEASURED)},
        evaluation=Evaluation(verifier=Match()),
    )
