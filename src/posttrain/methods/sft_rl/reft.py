"""ReFT: a short warm-up by imitation, then PPO on the same questions, with a little reward for an answer that parses.

Source: Luong et al. 2024, arXiv:2401.08967, with the settings of its scripts: two epochs of SFT, then PPO with the SFT
model as the first policy, the reference and the critic's body; reward 1 for the right number, 0.1 for another number, 0
for none, less 0.01 KL(policy || SFT model) per token (0.05 where the working is in words); GAE with gamma 1 and
lambda 0.95, whitened; clip 0.2; one answer a question, two passes over each batch, loss averaged over an answer first.

    posttrain run reft tasks=mine.jsonl model=FOLDER    # columns: prompt, answer (a number), completion (to imitate)

A reward of another kind than `match` is kept as it is. Where the setting judges held-out answers by its reward, it goes
on to.

`CHANGES`: two passes over each batch are PPO's; ReFT makes each of them in one update.

Differs: the critic has a body and a learning rate of its own, so the weight of its loss (5 in the paper) has nothing to
weigh against. The score of an answer that was cut stands at its last token. A vote among answers comes with
``evaluation.samples``, a trained reranker does not.

Measured here: SFT alone (2 epochs) against ReFT (as much SFT, then 20 steps of PPO; 5 seeds): held-out accuracy 82.6 %
against 86.0 %, -3.4 points [-8.2, +1.4]: no gain of the reinforcement that so few steps show (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.methods.policy_gradient.ppo import as_ppo
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.recipes.changes import judged_as_before, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.single_sums import single_sums

PARENT: Final = "ppo"
SETTING: Final = "single_sums"
PAPER: Final = "arXiv:2401.08967"
ROWS: Final = (102,)
CHANGES: Final = ("learner.minibatches", "critic_learner.minibatches")


def reft(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: imitation comes first, a wrong number is worth something, one update a pass."""
    recipe = judged_as_before(with_imitation(as_ppo(recipe or single_sums()), epochs=2.0))
    stage = rl_of(recipe)
    reward = stage.reward
    if isinstance(reward, Match):
        reward = replace(reward, numeric="always", tolerance=0.01, wrong=0.1)
    stage = replace(
        stage,
        reward=reward,
        reducer=Sequences(),
        learner=replace(stage.learner, minibatches=1),
        critic_learner=replace(stage.critic_learner, minibatches=1),
    )
    return with_stage(replace(recipe, name="reft"), stage)
