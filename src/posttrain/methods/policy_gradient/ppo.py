"""PPO: clipped policy gradient with token-level advantages (GAE) from a learned critic.

Source: Schulman et al. 2017, arXiv:1707.06347; for language models Ouyang et al. 2022, arXiv:2203.02155, appendix C
(gamma 1, lambda 0.95, clip 0.2, KL in the reward).

`CHANGES`: the clip acts only with several updates per batch; here two epochs of two minibatches.

Differs: the critic is a copy of the policy with a fresh head that starts at zero.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gae import GAE
from posttrain.components.objectives.value_clip import ValueClip
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl import KL
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rl_of, several_updates, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:1707.06347"
ROWS: Final = ()
CHANGES: Final = ("learner.epochs", "learner.minibatches")


def ppo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: GAE with a critic in place of the group baseline, two epochs per batch, KL in the reward."""
    recipe = with_critic(with_rl(recipe or arithmetic()))
    stage = rl_of(recipe)
    stage = replace(
        stage,
        advantage=GAE(),
        learner=several_updates(stage.learner, epochs=2, minibatches=2),
        penalties={**stage.penalties, "kl": KL(coefficient=0.01, form="k1", where="reward")},
        filters=every_group(stage),
    )
    recipe = with_models(recipe, {"reference": Model(source="role:policy")})
    return with_stage(replace(recipe, name="ppo"), stage)


def with_critic(recipe: Recipe) -> Recipe:
    """Adds a critic, its loss and its learner to the recipe; those that it has are kept."""
    stage = rl_of(recipe)
    if stage.critic is None:
        learner = Learning(optimizer=AdamW(lr=1e-3), epochs=2, minibatches=2)
        recipe = with_stage(recipe, replace(stage, critic=ValueClip(), critic_learner=learner))
    return with_models(recipe, {"critic": Model(source="role:policy", head="value", trained=True)})


def as_ppo(recipe: Recipe) -> Recipe:
    """Applies PPO to the recipe; unchanged if it has a critic, so that tuned values are kept."""
    recipe = with_rl(recipe)
    return recipe if rl_of(recipe).critic is not None else ppo(recipe)
