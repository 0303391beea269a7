"""MARFT: PPO for several agents that write one after the other, with credit along the chain of their turns.

Source: arXiv:2504.16129, and its released code, the variant with whole turns as actions (APPO): gamma 0.99 and lambda
0.95 at every hop between agents, the reward for the last agent alone, one ratio for a whole turn, clipped at 0.2, an
entropy bonus of 0.01, no KL term. Each agent has an adapter and an optimizer of its own on a frozen base. Before each
update, if the mean of q - 1 - log q is above 0.001, it and those left of the step are skipped, but not the critic's.

    posttrain run marft tasks=mine.jsonl model=FOLDER reward=mine.py:score    # columns: prompt, what reward reads

The variant with tokens as actions (TPPO): ``advantage.level=token objective.kind=ppo_clip`` and
``learner.stop_at=1.7e-6``. Further agents: ``rollout.between=[reviewer]`` with a model and learning settings of that
role. Several steps of dialogue: ``rollout.max_steps``. The last agent is the policy, the first is the role `reasoner`.

Where the policy has an adapter (``models.policy.lora={}``), each agent has one of its own on the same frozen base. In
the setting each has all weights of its own: the model is new, and with adapters on random weights not even the format
was learned (one seed).

Differs: all agents are updated from the same batch, the release's default; slices of time are `by_role.ROLE.every`.
Each agent has a critic of its own with the same targets, as no critic serves two roles. Its loss is a clipped square,
not Huber's, the same for errors below 10. The behaviour has temperature 1 as its log-probabilities have; the release
samples at 0.5 with top-k 50. With `rollout.max_steps` above 1 the ratio is that of all turns of an agent in a rollout.
The release does not multiply the objective of one agent by the ratio of the one before, as the theory has it; nor does
this.

Measured here, with tables in place of models (an agent sees a digit of four and writes a hint, the other sees the hint
and guesses; 5 seeds): after 50 steps the guess is right in 97 % [92, 101] with credit along the chain, in 98 % [97, 99]
with the same reward for both, and in 25 % if the guesser alone learns. With four tries the first guess is right in 96 %
[89, 103] after 200 steps, and in 34 % [28, 39] with the released masks, which take the credit of an episode's first
agent (docs/experiments.md).

The default run, 60 steps with four boxes (two seeds): of 60 held-out questions, which the policy answers alone, 27 and
23 % are right after imitation and 73 and 45 % at the end, one in four being chance. In 256 rollouts a step the last
agent is right in 19 and 21 % over the first five steps, in 74 and 49 % over the last five. On the bundled model with
adapters, at a third of the rate and with a quarter of the rollouts, 30 steps on six boxes showed no gain (one seed).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.chain_gae import ChainGAE
from posttrain.components.objectives.sequence_clip import SequenceClip
from posttrain.components.penalties.entropy import Entropy
from posttrain.components.rollouts.chain import Chain
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.methods.policy_gradient.ppo import with_critic
from posttrain.models import Model
from posttrain.recipes.changes import (
    every_group,
    rollouts_of,
    sampled_of,
    sampling_of,
    several_updates,
    with_models,
    with_stage,
)
from posttrain.recipes.tree import Recipe
from posttrain.settings.boxes import boxes
from posttrain.stages.rl.roles import RoleLearning

PARENT: Final = "ppo"
SETTING: Final = "boxes"
PAPER: Final = "arXiv:2504.16129"
ROWS: Final = (38,)


def marft(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: two agents with adapters, credit along their chain, a ratio for each turn, skipped updates."""
    recipe = with_critic(with_rl(recipe or boxes()))
    stage = sampled_of(recipe)
    learner = several_updates(stage.learner, minibatches=4)
    stage = replace(
        stage,
        rollout=Chain(n=rollouts_of(stage), sampling=sampling_of(stage)),
        advantage=ChainGAE(),
        objective=SequenceClip(clip_low=0.2, clip_high=0.2, ratio="product"),
        penalties={
            **{name: part for name, part in stage.penalties.items() if name != "kl"},
            "entropy": Entropy(coefficient=0.01),
        },
        filters=every_group(stage),
        by_role={"reasoner": RoleLearning(critic="reasoner_critic")},
        learner=replace(learner, stop_at=1e-3, stop_by="k3"),
    )
    roles = {
        "reasoner": Model(source="role:policy", trained=True, lora=recipe.models["policy"].lora),
        "reasoner_critic": recipe.models["critic"],
    }
    return with_stage(with_models(replace(recipe, name="marft"), roles), stage)
