"""LaRe: PPO with the return of an episode redistributed to its steps by a decoder of factors that code computes.

Source: Qu et al. 2024, arXiv:2412.11120, and its release: a language model writes the code of an encoder once, before
training: five candidates, a summary, up to five rounds of repair after execution on real steps. A decoder is trained so
that the rewards of an episode give its return, and its rewards take the place of the episode's
(`advantages/latent_reward`).

    posttrain run lare rollout.id=Pendulum-v1 matching.tasks=mine.jsonl models.policy.shape.dims=1
    # columns: prompt (an observation: 0.9 -0.4 0.1), completion (an action: -0.7)

The writer is a role of the recipe, a folder or a model behind an address, with `advantage.writer=ROLE
advantage.encoder=null`; `advantage.about` describes the task and the numbers of an observation.

Without a `writer` the encoder is code of the recipe: by default one for the default setting, written by hand. With
`advantage.encoder=null` the decoder takes the numbers of a step themselves: plain return decomposition.

Differs: the default setting is a point that moves to one of two targets, in place of MPE and MuJoCo; there is one
agent, so no split over agents. The learner is PPO, without a KL; the release has SAC and TD3 for single agents.
Advantages are whitened.

Measured here: rewards of steps from returns alone, correlation with the true ones after 40, 80 and 120 episodes: 0.11,
0.17 and 0.10 from 40 raw numbers, 1.00 from three factors (docs/experiments.md). The default against PPO with the
return at the end (40 steps of 32 episodes, 5 seeds): 100 % of held-out episodes reach the target against 97.6 %, +2.4
points [-1.4, +6.2]: no difference that five seeds can show, as both learn the task.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gae import GAE
from posttrain.components.advantages.latent_reward import LatentReward
from posttrain.methods.policy_gradient.ppo import as_ppo
from posttrain.recipes.changes import every_group, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.episodic_reaching import episodic_reaching

PARENT: Final = "ppo"
SETTING: Final = "episodic_reaching"
PAPER: Final = "arXiv:2412.11120"
ROWS: Final = (249,)
ENCODER: Final = '''
def factors(observation, action):
    """Squared distances from both targets after the move."""
    x, y = (place + 0.5 * max(-1.0, min(1.0, move)) for place, move in zip(observation[:2], action))
    return [(x - 1.0) ** 2 + y**2, (x + 1.0) ** 2 + y**2]
'''


def lare(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: rewards of a decoder in place of the episode's, from factors that code computes."""
    recipe = as_ppo(recipe or episodic_reaching())
    stage = rl_of(recipe)
    return with_stage(
        replace(recipe, name="lare"),
        replace(
            stage,
            filters=every_group(stage),
            advantage=LatentReward(advantage=GAE(gamma=1.0, lam=0.95), encoder=ENCODER if _reaches(recipe) else None),
        ),
    )


def _reaches(recipe: Recipe) -> bool:
    """Whether the environment is the one that the encoder is for."""
    return getattr(rl_of(recipe).rollout, "id", "") == "reaching"
