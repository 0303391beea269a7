"""PPO with a critic: one attempt a task, advantages from a learned value of every token's state.

Source: Schulman et al. 2017, arXiv:1707.06347; for language models Ouyang et al. 2022, arXiv:2203.02155, appendix C
(gamma 1, lambda 0.95, clip 0.2, KL in the reward).

Differs: the critic is a copy of the policy with a fresh head that starts at zero.
"""

from dataclasses import replace

from posttrain.components.advantages.gae import GAE
from posttrain.components.objectives.value_clip import ValueClip
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl import KL
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, with_models, with_stage
from posttrain.recipe.tree import Recipe
from posttrain.training.settings import Learning


def ppo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: GAE with a critic in place of the group, two passes a batch, KL in the reward."""
    recipe = recipe or grpo()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        advantage=GAE(),
        critic=ValueClip(),
        critic_learner=Learning(optimizer=AdamW(lr=1e-3), epochs=2, minibatches=2),
        learner=replace(stage.learner, epochs=2, minibatches=2),
        penalties={"kl": KL(coefficient=0.01, form="k1", where="reward")},
        filters={},
    )
    roles = {
        "critic": Model(source="role:policy", head="value", trained=True),
        "reference": Model(source="role:policy"),
    }
    return with_stage(with_models(replace(recipe, name="ppo"), roles), stage)
