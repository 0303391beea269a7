"""Adversarial Surprise: PPO for two roles of one body, of which one seeks surprise and the other avoids it.

Source: arXiv:2107.07394, and its released code: rounds alternate, Control's rewards are log-probabilities of
observations in the second half of its rounds, Explore's is minus their sum in the round after its own
(`rollouts/surprise`); two networks, each with PPO on its own steps: gamma 0.99, lambda 0.95, clip 0.2, entropy 0.01,
four passes, no KL term.

    posttrain run adversarial_surprise setting=rooms model=FOLDER rollout.environment.kind=mine.py    # columns: prompt

`rollout.quiet=0` scores the whole round of Control, `rollout.buffer=round` counts each round apart.

Differs: see `rollouts/surprise`. Two passes over a batch are the setting's limit of time. Evaluation has Explore act
alone; rooms that both visited are the metric ``rooms`` of training. Counts are never kept beyond an episode.

Measured here, with tables in place of networks (6 rooms of a ring, 2 with light, 1,600 episodes, 5 seeds): Adversarial
Surprise visits 4.17 rooms [3.46, 4.88], exploration alone 4.21 [3.37, 5.04], a random player 3.64 [3.57, 3.71] and
control alone 1.00, which never leaves the dark. So five seeds show no gain over exploration alone, which does not stay
at the random light within this training. With all turns of Control scored 4.58 [4.13, 5.03], and more lights turned
off; with the counts of a round 2.18 [0.53, 3.84] (docs/experiments.md).

The default run with a small model, one seed: Explore alone, at its likeliest actions, goes around the whole ring in all
of 20 held-out episodes after 10 steps, and in none after imitation.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gae import GAE
from posttrain.components.environments.rooms import Rooms
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.penalties.entropy import Entropy
from posttrain.components.rewards.episode import Episode
from posttrain.components.rollouts.surprise import Surprise
from posttrain.components.rollouts.turns import Turns
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.methods.policy_gradient.ppo import with_critic
from posttrain.models import Model
from posttrain.recipes.changes import (
    every_group,
    rl_of,
    rollouts_of,
    sampling_of,
    several_updates,
    with_models,
    with_stage,
)
from posttrain.recipes.tree import Recipe
from posttrain.settings.rooms import rooms
from posttrain.stages.rl.roles import RoleLearning

PARENT: Final = "ppo"
SETTING: Final = "rooms"
PAPER: Final = "arXiv:2107.07394"
ROWS: Final = (217,)
INHERITED: Final = {"learner.epochs": "2; the released run makes 4 passes over a batch"}


def adversarial_surprise(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: rounds of two roles with rewards of sum zero, from how surprising observations are."""
    recipe = with_critic(with_rl(recipe or rooms()))
    stage = rl_of(recipe)
    own = stage.rollout
    environment, turns = (own.environment, own.max_turns) if isinstance(own, Turns) else (Rooms(), 64)
    stage = replace(
        stage,
        rollout=Surprise(
            environment=environment, n=rollouts_of(stage), length=max(turns // 4, 1), sampling=sampling_of(stage)
        ),
        reward=Episode(),
        advantage=GAE(gamma=0.99, lam=0.95),
        objective=PPOClip(clip_low=0.2, clip_high=0.2),
        penalties={
            **{name: part for name, part in stage.penalties.items() if name != "kl"},
            "entropy": Entropy(coefficient=0.01),
        },
        filters=every_group(stage),
        by_role={"control": RoleLearning(critic="control_critic")},
        learner=several_updates(stage.learner, epochs=2, minibatches=2),
    )
    roles = {
        "control": Model(source="role:policy", trained=True),
        "control_critic": recipe.models["critic"],
    }
    return with_stage(with_models(replace(recipe, name="adversarial_surprise"), roles), stage)
