"""SPA-RL: a model learns from totals what each turn of an agent contributed, and PPO is rewarded turn by turn.

Source: Wang et al. 2025, arXiv:2505.20732, and its released code (github.com/WangHanLinHenry/SPA-RL-Agent): imitation,
then an estimator trained on attempts and frozen, then PPO with a critic and the KL in the reward, where the end of each
turn earns alpha c_t + beta g_t (`penalties/progress`) and the end of the attempt nothing more.

With the score at the end, as plain PPO has it:
`rl.penalties={kl: {kind: kl, coefficient: 0.01, form: k1, where: reward}}`.

Differs: the authors make one pass of PPO over the attempts that the estimator learned from; here both sample afresh.
PPO's constants and alpha are not in the release. World, model and imitation are those of `gigpo`, without the world's
own price for invalid actions; success ends an attempt early there, so that a beta above 0 pays for not arriving, and it
is 0. Sizes are for that model.

Measured here: solved while PPO learns, 15 steps, five seeds: 58.3 % against 74.7 % with the score at the end, -16.4
points [-47.2, +14.5], lower in every seed. Four are 2 to 8 points behind; in the fifth the first policy solves too
little for the estimator to learn more than a mean, every turn earns the same, and attempts only get longer, as they do
in two of five seeds after 512 attempts in the place of 2,560, and in all with beta 0.5 (docs/experiments.md).
"""

from dataclasses import replace
from typing import Any, Final

from posttrain.components.advantages.gae import GAE
from posttrain.components.environments.corridor import Corridor
from posttrain.components.objectives.value_clip import ValueClip
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl import KL
from posttrain.components.penalties.progress import Progress
from posttrain.components.reducers.sequences import Sequences
from posttrain.methods.credit.gigpo import gigpo
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, with_models
from posttrain.recipe.tree import Recipe
from posttrain.stages.progress import ProgressTraining
from posttrain.training.settings import Learning

ROWS: Final = (228,)


def spa_rl(recipe: Recipe | None = None) -> Recipe:
    """A change to GiGPO: an estimator of progress before PPO, whose rewards take the place of the score."""
    recipe = recipe or gigpo()
    stage = rl_of(recipe)
    rollout: Any = stage.rollout
    rollout = replace(rollout, environment=Corridor(invalid_penalty=0.0))
    progress = ProgressTraining(
        rollout=rollout,
        reward=stage.reward,
        reducer=Sequences(),
        learner=Learning(optimizer=AdamW(lr=1e-3), epochs=2, minibatches=2),
    )
    ppo = replace(
        stage,
        rollout=rollout,
        advantage=GAE(),
        critic=ValueClip(),
        critic_learner=Learning(optimizer=AdamW(lr=1e-3), epochs=2, minibatches=2),
        learner=replace(stage.learner, epochs=2, minibatches=2),
        penalties={"kl": KL(coefficient=0.01, form="k1", where="reward"), "progress": Progress(beta=0.0)},
    )
    roles = {
        "critic": Model(source="role:policy", head="value", trained=True),
        "reference": Model(source="role:policy"),
        "progress": Model(source="role:policy", head="reward", trained=True),
    }
    before = {name: other for name, other in recipe.stages.items() if other is not stage}
    return replace(with_models(recipe, roles), name="spa_rl", stages={**before, "progress": progress, "rl": ppo})
