"""RLCR: GRPO with a reward for correctness and for calibration, the Brier score of a stated confidence.

Source: Damani et al. 2025, arXiv:2507.16806: reward c - (q - c)^2 for a correct (c = 1) or incorrect (c = 0) answer of
stated confidence q, and one point below the worst for a malformed answer; advantages without division by the group's
std, no KL; 32 samples per task at temperature 0.7. Calibration is in the metrics (``calibration/...``) and in the
evaluation (``calibration``, and with ``evaluation.samples`` the vote weighed by confidence).

    posttrain run rlcr tasks=mine.jsonl model=FOLDER
    # columns: prompt, answer, completion (to imitate; ends with <confidence>0.7</confidence>)

Correctness is that of the setting's reward. If held-out answers are scored by the setting's reward, they still are,
without the confidences.

Differs: truncated answers count as malformed, and are not dropped. Temperature 1, and groups of 16.

Measured here: against rewards for correctness alone (12 steps of 8 tasks after 80 of SFT, 5 seeds): Brier score of
sampled answers over the last five steps 0.295 against 0.324, -0.029 [-0.053, -0.004]; calibration error of greedy
held-out answers -0.045 [-0.18, +0.089], accuracy +0.6 points [-3.0, +4.2] (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.rewards.calibrated import Calibrated
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.stated_confidence import stated_confidence

PARENT: Final = "grpo"
SETTING: Final = "stated_confidence"
PAPER: Final = "arXiv:2507.16806"
ROWS: Final = (169,)


def rlcr(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a proper scoring rule of the stated confidence in the reward, no division by the std."""
    recipe = with_rl(recipe or stated_confidence())
    stage = rl_of(recipe)
    correct = stage.reward.correct if isinstance(stage.reward, Calibrated) else stage.reward
    stage = replace(stage, reward=Calibrated(correct=correct), advantage=GroupMean(scale="none"))
    evaluation = recipe.evaluation
    if evaluation.verifier is None:
        evaluation = replace(evaluation, verifier=Calibrated(correct=correct, weight=0.0, malformed=None))
    return with_stage(replace(recipe, name="rlcr", evaluation=evaluation), stage)
