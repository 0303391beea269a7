"""KDRL: GRPO joined with on-policy distillation, a reverse KL to a teacher on the same rollouts.

Source: Xu et al. 2025, arXiv:2506.02208: the objective of GRPO minus beta KL(policy || teacher) on the same rollouts,
as a k2 term of the loss, whose expected gradient is that of the reverse KL. Beta decays linearly from 5e-3 to 1e-3 in
80 of 280 steps and is constant afterwards. To distill on incorrect rollouts only: ``penalties.kl.rollouts=wrong`` (or
``unsolved``).

    posttrain run kdrl tasks=mine.jsonl model=FOLDER    # columns: prompt, answer, completion (for the teacher's SFT)

Where the setting has no teacher among its models, one is trained first: a copy of the policy, by SFT on the
demonstrations. An existing teacher is kept and must have the policy's tokenizer; then the column completion is not
needed.

Differs: the mean is over all tokens of a step, including those of rollouts without a distillation loss. The paper
averages within the group; its masking rule was not found.

Measured here: against GRPO (20 steps of 16 x 8, 5 seeds): held-out accuracy 82.2 % against 82.4 %, -0.2 points [-0.9,
+0.5]: no difference that five seeds can show (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.penalties.kl import KL
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rl_of, sft_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2506.02208"
ROWS: Final = (132,)
INHERITED: Final = {"reducer": "all tokens of a step alike; the paper takes the mean within the group first"}


def kdrl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a KL to a teacher on the rollouts, also in groups of equal rewards."""
    recipe = with_teacher(with_rl(recipe or arithmetic()))
    pull = KL(role="teacher", form="k2", coefficient=5e-3, final=1e-3, until=0.3)
    stage = rl_of(recipe)
    stage = replace(stage, penalties={**stage.penalties, "kl": pull}, filters=every_group(stage))
    return with_stage(replace(recipe, name="kdrl"), stage)


def with_teacher(recipe: Recipe) -> Recipe:
    """Adds a teacher, a copy of the policy after SFT, to the recipe; unchanged if it has one."""
    if "teacher" in recipe.models:
        return recipe
    imitation = replace(sft_of(demonstrations()), role="teacher", epochs=2.0)
    recipe = with_models(recipe, {"teacher": Model(source="role:policy", trained=True)})
    return replace(recipe, stages={"teacher": imitation, **recipe.stages})
