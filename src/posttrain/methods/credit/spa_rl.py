"""SPA-RL: a model learns from totals what each turn of an agent contributed, and PPO is rewarded turn by turn.

Source: Wang et al. 2025, arXiv:2505.20732, and its released code (github.com/WangHanLinHenry/SPA-RL-Agent): imitation,
then an estimator trained on attempts and frozen, then PPO with a critic and the KL in the reward, where the end of each
turn earns alpha c_t + beta g_t (`penalties/progress`) and the end of the attempt nothing more.

With the score at the end, as plain PPO has it: `rl.penalties={kl: {kind: kl, coefficient: 0.01, form: k1, where:
reward}}`.

Differs: the authors make one pass of PPO over the attempts that the estimator learned from; here both sample afresh.
PPO's constants and alpha are not in the release. In the corridor success ends an attempt early, so that a beta above 0
pays for not arriving, and it is 0.

Measured here: solved while PPO learns, 15 steps, five seeds: 58.3 % against 74.7 % with the score at the end, -16.4
points [-47.2, +14.5], lower in every seed. Four are 2 to 8 points behind; in the fifth the first policy solves too
little for the estimator to learn more than a mean, every turn earns the same, and attempts only get longer, as they do
in two of five seeds after 512 attempts in the place of 2,560, and in all with beta 0.5 (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.progress import Progress
from posttrain.components.reducers.sequences import Sequences
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.free_corridor import free_corridor
from posttrain.stages.progress import ProgressTraining
from posttrain.training.settings import Learning

PARENT: Final = "ppo"
SETTING: Final = "free_corridor"
PAPER: Final = "arXiv:2505.20732"
ROWS: Final = (228,)


def spa_rl(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: an estimator of progress comes before it, whose rewards take the place of the score."""
    recipe = ppo(recipe or free_corridor())
    stage = rl_of(recipe)
    progress = ProgressTraining(
        rollout=stage.rollout,
        reward=stage.reward,
        reducer=Sequences(),
        learner=Learning(optimizer=AdamW(lr=1e-3), epochs=2, minibatches=2),
    )
    recipe = with_models(recipe, {"progress": Model(source="role:policy", head="reward", trained=True)})
    recipe = with_stages_before(replace(recipe, name="spa_rl"), {"progress": progress}, stage)
    return with_stage(recipe, replace(stage, penalties={**stage.penalties, "progress": Progress(beta=0.0)}))
