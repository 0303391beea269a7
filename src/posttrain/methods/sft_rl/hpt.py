"""HPT: hybrid post-training that uses SFT on the demonstration of a task that the policy fails, and RL otherwise.

Source: Lv et al. 2025, arXiv:2509.04419: if none of 8 rollouts of a task is correct (gamma = 0), the loss is SFT on the
demonstration, and the rollouts are dropped; otherwise it is RL on the rollouts. The RL loss is -A p / p_old with A =
reward - group mean and no clipping; entropy bonus 0.001; the SFT loss has weight 1 (0.3 for the 1.5B model). The metric
``demonstrated`` is the share of tasks with an SFT loss.

    posttrain run hpt tasks=mine.jsonl model=FOLDER    # columns: prompt, answer, completion

Differs: every token of a step has the same weight. The released code divides the RL loss by the maximal length of a
completion and averages the SFT loss over each micro-batch, so that their ratio depends on packing. It also skips
updates with a gradient norm above 80. A task without a demonstration is trained on its rollouts.

Measured here: against GRPO (20 steps of 16 x 8, 5 seeds): held-out accuracy 82.6 % against 82.4 %, +0.2 points [-2.4,
+2.8]: no difference that five seeds can show. 9 % of the tasks had an SFT loss (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.filters.demonstration_gate import DemonstrationGate
from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.objectives.unified import Unified
from posttrain.components.penalties.entropy import Entropy
from posttrain.components.rollouts.demonstrated import Demonstrated
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.recipes.changes import every_group, rollouts_of, sampled_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2509.04419"
ROWS: Final = (138,)
INHERITED: Final = {"reducer": "all tokens of a step alike; the release divides by the longest completion allowed"}


def hpt(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: demonstrations in the groups, a gate between them and the rollouts, two losses."""
    recipe = with_rl(recipe or arithmetic())
    stage = sampled_of(recipe)
    stage = replace(
        stage,
        rollout=Demonstrated(n=rollouts_of(stage), sampling=sampling_of(stage)),
        filters={**every_group(stage), "gate": DemonstrationGate()},
        advantage=GroupMean(scale="none"),
        objective=ByOrigin(sampled=Unified(denominator="old")),
        penalties={**stage.penalties, "entropy": Entropy(coefficient=0.001)},
    )
    return with_stage(replace(recipe, name="hpt"), stage)
