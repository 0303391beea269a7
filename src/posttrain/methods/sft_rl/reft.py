"""ReFT: a short SFT warm-up, then PPO on the same questions, with a partial reward for answers that parse.

Source: Luong et al. 2024, arXiv:2401.08967, with the settings of its scripts: two epochs of SFT, then PPO with the SFT
model as the initial policy, the reference and the critic's body; reward 1 for the correct number, 0.1 for another
number, 0 for none, minus 0.01 KL(policy || SFT model) per token (0.05 for natural-language solutions); GAE with gamma 1
and lambda 0.95, whitened; clip 0.2; one answer per question, two epochs per batch, the mean over an answer's tokens,
then over answers.

    posttrain run reft tasks=mine.jsonl model=FOLDER    # columns: prompt, answer (a number), completion (to imitate)

A reward of another kind than `match` is kept. If held-out answers are scored by the setting's reward, they still are.

`CHANGES`: two epochs per batch are PPO's; in ReFT each is one update.

Differs: the critic has its own body and learning rate, so the weight of its loss (5 in the paper) does not apply. The
score of a truncated answer is at its last token. Majority voting is available with ``evaluation.samples``, a trained
reranker is not.

Measured here: SFT alone (2 epochs) against ReFT (as much SFT, then 20 steps of PPO; 5 seeds): held-out accuracy 82.6 %
against 86.0 %, -3.4 points [-8.2, +1.4]: no gain of RL that so few steps can show (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.match import Match
from posttrain.methods.policy_gradient.ppo import as_ppo
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.single_sums import single_sums

PARENT: Final = "ppo"
SETTING: Final = "single_sums"
PAPER: Final = "arXiv:2401.08967"
ROWS: Final = (102,)
CHANGES: Final = ("learner.minibatches", "critic_learner.minibatches")


def reft(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: SFT first, a partial reward for an incorrect number, one update per epoch."""
    recipe = keep_verifier(with_imitation(as_ppo(recipe or single_sums()), epochs=2.0))
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
