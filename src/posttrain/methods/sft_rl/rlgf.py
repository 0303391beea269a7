"""RLGF: PPO with a guide that writes prefixes for the policy, or continues the policy's; four algorithms.

Source: Chang et al. 2023, arXiv:2306.11816, and its release (TRIL). `rollout.algorithm` is ``d2lols`` (AggreVaTeD until
tau, then PPO++), ``lols`` (one of the two by a coin in each step), ``ppo_plus_plus`` or ``aggrevated``
(`rollouts/guided`). AggreVaTeD has a critic of its own, which learns the value of the guide. PPO as released: KL 0.001
in the reward, GAE with gamma 0.99 and lambda 0.95 and no whitening, clips of 0.2, and a likelihood term of weight 0.1
on the demonstrations of the data.

    posttrain run rlgf tasks=mine.jsonl model=FOLDER models.guide.source=OTHER   # columns: prompt, answer, completion

Without demonstrations: `experts=null`. With `rollout.algorithm=ppo_plus_plus rollout.beta=0` it is PPO.

Differs: the weights 1 and 0.1 of the two losses are 10/11 and 1/11. Epochs and batches are those of `ppo`. The guide of
the default setting is the bundled model after a few updates of imitation; the release has supervised GPT-2 and T5.
Where the stage's critic has no target, its loss is 0 and the token still counts in the mean.

Measured here, 25 steps of the default setting, five seeds: held-out accuracy 86.0 % [77.6, 94.4], PPO 26.9 %
[9.5, 44.3], from 7.0 % before reinforcement: 59.1 points more [40.6, 77.6], in each seed. PPO++ comes to 87.0 % [85.0,
89.0], so that the order of guides is not decided (docs/experiments.md). Without the likelihood term 0.5 % (four seeds):
while the guide rolls out, the policy learns prefixes that the guide completes, and nothing of the letters; it then
finds hardly any reward by itself. Imitation is enough here: 60 updates of SFT on the demonstrations have 89.3 %, and
81.1 % after PPO.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gae import GAE
from posttrain.components.advantages.last_writer import LastWriter
from posttrain.components.balances.fixed import Fixed
from posttrain.components.experts.stream import Stream
from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.by_origin import ByOrigin as ByOriginReducer
from posttrain.components.reducers.tokens import Tokens
from posttrain.components.rollouts.guided import Guided
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.models import Model
from posttrain.recipes.changes import rollouts_of, sampled_of, sampling_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.guided_letters import guided_letters

PARENT: Final = "ppo"
SETTING: Final = "guided_letters"
PAPER: Final = "arXiv:2306.11816"
ROWS: Final = (255,)


def rlgf(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: rollouts of the policy and a guide, a critic of the guide, a term of likelihood."""
    recipe = ppo(recipe or guided_letters())
    stage = sampled_of(recipe)
    stage = replace(
        stage,
        rollout=Guided(n=rollouts_of(stage), sampling=sampling_of(stage)),
        advantage=LastWriter(advantage=GAE(gamma=0.99, lam=0.95, whiten=False)),
        penalties={**stage.penalties, "kl": KL(coefficient=0.001, form="k1", where="reward")},
        experts=Stream(batch=max(stage.prompts, 1)),
        balance=Fixed(mu=1.0 / 11.0),
        objective=ByOrigin(sampled=PPOClip()),
        reducer=ByOriginReducer(sampled=stage.reducer, demonstrated=Tokens()),
    )
    models = {
        "guide": Model(source="role:policy"),
        "guide_critic": Model(source="role:policy", head="value", trained=True),
    }
    return with_stage(with_models(replace(recipe, name="rlgf"), models), stage)
