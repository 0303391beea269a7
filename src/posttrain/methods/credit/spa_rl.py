"""SPA-RL: PPO for agents with dense turn rewards from a model that attributes the final reward to turns.

Source: Wang et al. 2025, arXiv:2505.20732, and its released code (github.com/WangHanLinHenry/SPA-RL-Agent): SFT, then
an estimator trained on rollouts and frozen, then PPO with a critic and the KL in the reward. The end of each turn has
the reward alpha c_t + beta g_t (`penalties/progress`), and the end of the rollout has no other reward.

With the score at the end, as in plain PPO: `rl.penalties={kl: {kind: kl, coefficient: 0.01, form: k1, where: reward}}`.

Differs: the authors make one epoch of PPO over the rollouts that the estimator was trained on; here both sample new
ones. PPO's constants and alpha are not in the release. In the corridor success ends a rollout early, so that a beta
above 0 would reward not arriving; it is 0.

Measured here: success rate during PPO, 15 steps, five seeds: 57.4 % against 74.7 % with the score at the end, -17.3
points [-55.6, +21.1], lower in every seed. Four seeds are 2 to 13 points lower. In the fifth the initial policy solves
too little for the estimator to learn more than a mean: every turn gets the same reward, and rollouts only get longer.
The same happens in two of five seeds after 512 rollouts instead of 2,560, and in all with beta 0.5
(docs/experiments.md).
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
    """A change to PPO: an estimator of progress is trained first, and its turn rewards replace the score."""
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
