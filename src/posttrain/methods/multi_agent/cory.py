"""CORY: cooperative two-agent PPO, in which a pioneer and an observer share a reward and exchange roles.

Source: Ma et al. 2024, arXiv:2410.06101, and its released IMDB run: the reward of both agents is the sum of the two
scores, normalized by running moments; exact KL to one frozen initial model in the reward, with an adaptive weight
(start 0.4, target 6, horizon 10000); independent PPO updates; the agents exchange roles every 5 steps. One of them is
used alone after training, as the pioneer.

    posttrain run cory tasks=mine.jsonl model=FOLDER reward=mine.py:score    # columns: prompt, what reward reads

Differs: each agent's critic is a separate model instead of a head on the agent, as in the method `ppo`, and is
exchanged with it. Training state that the released code resets in an exchange stays with the model here
(`hooks.roles.reset=true` resets it). A batch with a mean ratio above 10 is not skipped.

Measured here: PPO against the pioneer (share of good letters, 40 steps of 32, 5 seeds, as many updates of each model
and twice the samples): reward 0.335 against 0.290 at the end, +0.045 [-0.037, +0.127]; KL 0.63 against 0.51 nats: no
difference that five seeds can show (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.normalized import Normalized
from posttrain.components.hooks.swap import Swap
from posttrain.components.penalties.adaptive_kl import AdaptiveKL
from posttrain.components.rollouts.pioneer_observer import PioneerObserver
from posttrain.methods.policy_gradient.ppo import as_ppo
from posttrain.models import Model
from posttrain.recipes.changes import rollouts_of, sampled_of, sampling_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.rl.roles import RoleLearning

PARENT: Final = "ppo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2410.06101"
ROWS: Final = (68,)
INHERITED: Final = {"learner.epochs": "2; the released run makes 4 passes over a batch"}


def cory(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: a pioneer and an observer with a team reward, adaptive KL and exchanged roles."""
    recipe = as_ppo(recipe or arithmetic())
    stage = sampled_of(recipe)
    stage = replace(
        stage,
        rollout=PioneerObserver(n=rollouts_of(stage), sampling=sampling_of(stage)),
        advantage=Normalized(advantage=stage.advantage),
        penalties={**stage.penalties, "kl": AdaptiveKL()},
        by_role={"observer": RoleLearning(critic="observer_critic")},
        hooks={"roles": Swap(pairs={"policy": "observer", "critic": "observer_critic"})},
    )
    roles = {
        "observer": Model(source="role:policy", trained=True),
        "observer_critic": recipe.models["critic"],
    }
    return with_stage(with_models(replace(recipe, name="cory"), roles), stage)
