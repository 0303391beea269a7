"""PCL: a value model of the prompt predicts which tasks are solved half of the time, and these are trained on.

Source: Prompt Curriculum Learning, arXiv:2510.01135: four candidates for each task of a step, one forward pass of a
value model over their prompts, the nearest predictions to 0.5 are trained on by GRPO, all of them; then the value model
learns from their mean rewards.

Data: any tasks with a reward in [0, 1]; for others set `curriculum.squash=false` and `curriculum.target`.

Differs: the value model starts as a copy of the policy with a scalar head, as no released code shows another; its rate
and updates per step are not known (`critic_learner`).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.curricula.predicted import Predicted
from posttrain.components.optimizers.adamw import AdamW
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.uneven_sums import uneven_sums
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "uneven_sums"
PAPER: Final = "arXiv:2510.01135"
ROWS: Final = (133,)


def pcl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a value model chooses the tasks of a step among four times as many; no filter."""
    recipe = grpo(recipe or uneven_sums())
    recipe = with_models(recipe, {"difficulty": Model(source="role:policy", head="reward", trained=True)})
    stage = replace(
        rl_of(recipe),
        curriculum=Predicted(),
        filters={},
        critic_learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    return with_stage(replace(recipe, name="pcl"), stage)
