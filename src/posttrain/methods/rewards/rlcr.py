"""RLCR: the model says how sure it is, and is paid for being right about that too.

Source: Damani et al. 2025, arXiv:2507.16806: reward c - (q - c)^2 for a right (c = 1) or wrong (c = 0) answer of stated
confidence q, one point less than the worst for another form; advantage in units of reward (no division by the group's
deviation), no KL; 32 samples a task at temperature 0.7. Calibration is in the metrics (``calibration/...``) and in the
evaluation (``calibration``, and with ``evaluation.samples`` the vote weighed by confidence).

Differs: the bundled model does not follow instructions, so that it first imitates the form, with random confidences
(at a high learning rate, as it has never seen the signs of a tag). Answers that are cut count as malformed, and are not
left out. Temperature 1, and sizes for the bundled model.

Measured here: against rewards for being right alone (12 steps of 8 tasks after 80 of imitation, 5 seeds): Brier score
of sampled answers over the last five steps 0.295 against 0.324, -0.029 [-0.053, -0.004]; calibration error of greedy
held-out answers -0.045 [-0.18, +0.089], accuracy +0.6 points [-3.0, +4.2] (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.calibrated import Calibrated
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.stated_confidence import StatedConfidence
from posttrain.engines import Sampling
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipe.changes import rl_of, sft_of
from posttrain.recipe.tree import Recipe

ROWS: Final = (169,)


def rlcr(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a stated confidence, imitated first and then scored; evaluated by right answers alone."""
    recipe = recipe or grpo()
    stage = replace(
        rl_of(recipe),
        rollout=Independent(n=16, sampling=Sampling(max_tokens=112)),
        reward=Calibrated(correct=Match()),
        advantage=GroupMean(scale="none"),
    )
    form = sft_of(sft())
    form = replace(form, epochs=2.0, learner=replace(form.learner, optimizer=AdamW(lr=3e-3)))
    return replace(
        recipe,
        name="rlcr",
        tasks=StatedConfidence(tasks=recipe.tasks),
        stages={"sft": form, "rl": stage},
        evaluation=replace(recipe.evaluation, verifier=Calibrated(correct=Match(), weight=0.0, malformed=None)),
    )
