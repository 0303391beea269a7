"""KDRL: GRPO joined with distillation, a reward for right answers and a pull towards a teacher on the same rollouts.

Source: Xu et al. 2025, arXiv:2506.02208: the objective of GRPO less beta KL(policy || teacher) on the same rollouts, as
a k2 term of the loss, whose mean gradient is that of the reverse KL; beta falls in a straight line from 5e-3 to 1e-3
and stays there (80 of 280 steps). Distilling failures only is ``penalties.kl.attempts=wrong`` (or ``unsolved``).

    posttrain run kdrl tasks=mine.jsonl model=FOLDER    # columns: prompt, answer, completion (the teacher imitates it)

Where the setting has no teacher among its models, one is made first: a copy of the policy that imitates the
demonstrations. A teacher that is there is kept, and must have the policy's tokenizer; then there need be no completion.

Differs: all tokens of a step are averaged together, those of attempts that are left out of the distillation too; the
paper averages within the group, and its rule for what is left out was not seen.

Measured here: against GRPO (20 steps of 16 x 8, 5 seeds): held-out accuracy 82.2 % against 82.4 %, -0.2 points [-0.9,
+0.5]: none (docs/experiments.md).
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
    """A change to GRPO: attempts are pulled towards a teacher; groups without a comparison still learn from it."""
    recipe = with_teacher(with_rl(recipe or arithmetic()))
    pull = KL(role="teacher", form="k2", coefficient=5e-3, final=1e-3, until=0.3)
    stage = rl_of(recipe)
    stage = replace(stage, penalties={**stage.penalties, "kl": pull}, filters=every_group(stage))
    return with_stage(replace(recipe, name="kdrl"), stage)


def with_teacher(recipe: Recipe) -> Recipe:
    """The recipe with a teacher, a copy of the policy that imitates first; unchanged where it has one."""
    if "teacher" in recipe.models:
        return recipe
    imitation = replace(sft_of(demonstrations()), role="teacher", epochs=2.0)
    recipe = with_models(recipe, {"teacher": Model(source="role:policy", trained=True)})
    return replace(recipe, stages={"teacher": imitation, **recipe.stages})
