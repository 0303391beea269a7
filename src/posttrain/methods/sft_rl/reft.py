"""ReFT: a short warm-up by imitation, then PPO on the same questions, with a little reward for an answer that parses.

Source: Luong et al. 2024, arXiv:2401.08967, with the settings of its scripts: two epochs of SFT, then PPO with the SFT
model as the first policy, the reference and the critic's body; reward 1 for the right number, 0.1 for another number, 0
for none, less 0.01 KL(policy || SFT model) per token (0.05 where the working is in words); GAE with gamma 1 and
lambda 0.95, whitened; clip 0.2; one answer a question, two passes over each batch, loss averaged over an answer first.

Differs: the critic has a body and a learning rate of its own, so the weight of its loss (5 in the paper) has nothing to
weigh against. The score of an answer that was cut stands at its last token. Sizes are for the bundled model. A vote
among answers comes with ``evaluation.samples``, a trained reranker does not.

Measured here: SFT alone (2 epochs) against ReFT (as much SFT, then 20 steps of PPO; 5 seeds): held-out accuracy 82.6 %
against 86.0 %, -3.4 points [-8.2, +1.4]: no gain of the reinforcement that so few steps show (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.engines import Sampling
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipe.changes import rl_of, sft_of
from posttrain.recipe.tree import Recipe

ROWS: Final = (102,)


def reft(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: imitation comes first, a wrong number is worth something, one answer a question."""
    recipe = recipe or ppo()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        prompts=64,
        rollout=Independent(n=1, sampling=Sampling(max_tokens=64)),
        reward=Match(numeric="always", tolerance=0.01, wrong=0.1),
        reducer=Sequences(),
        learner=replace(stage.learner, minibatches=1),
        critic_learner=replace(stage.critic_learner, minibatches=1),
    )
    warm_up = replace(sft_of(sft()), epochs=2.0)
    return replace(
        recipe,
        name="reft",
        stages={"sft": warm_up, "rl": stage},
        evaluation=replace(recipe.evaluation, verifier=Match()),
    )
