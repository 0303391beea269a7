"""Visual-RFT: GRPO for object detection, with rewards for the IoU of boxes and for calibrated confidence.

Source: Liu et al. 2025, arXiv:2503.01785, section 3, and its release at 9486633: reward IoU + confidence + format, each
in [0, 1] and of equal weight; groups of 8; advantage (R - mean) / (std + 1e-4); one update per batch; k3 KL to the
initial model with weight 0.04 (the default of its trainer); the mean over an answer's tokens, then over answers.
Classification is ``tasks.question=label`` with the reward ``label`` in place of the first two parts.

    posttrain run visual_rft tasks=mine.jsonl "models.policy={source: FOLDER, trained: true}"
    # columns: image, prompt, boxes ([[x1, y1, x2, y2], ...]), completion (an answer to imitate)

Differs: the default setting is a small model on generated images, after SFT. Edge cases of the reward are in
`posttrain.components.rewards.boxes`; the format reward also requires that no part is empty.

Measured here: against IoU alone (16 steps, 5 seeds), sampled answers of the last five steps: confidence reward 0.521
against 0.491, +0.030 [+0.019, +0.041], IoU 0.447 against 0.464, -0.017 [-0.028, -0.005]. Both rise during training,
while the share of correct boxes with greedy decoding falls from 95.4 % to 89.8 % and 91.8 % (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.boxes import Boxes
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.sum import Sum
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.shapes import shapes

PARENT: Final = "grpo"
SETTING: Final = "shapes"
PAPER: Final = "arXiv:2503.01785"
ROWS: Final = (30,)


def visual_rft(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: rewards for boxes, confidences and format; KL in the loss, averaged over answers."""
    recipe = with_rl(recipe or shapes())
    parts = {"iou": Boxes(), "confidence": Boxes(measure="confidence"), "format": Format()}
    stage = rl_of(recipe)
    stage = replace(
        stage,
        reward=Sum(parts=parts),
        filters=every_group(stage),
        advantage=GroupMean(epsilon=1e-4),
        reducer=Sequences(),
        penalties={**stage.penalties, "kl": KL()},
    )
    recipe = with_models(replace(recipe, name="visual_rft"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
