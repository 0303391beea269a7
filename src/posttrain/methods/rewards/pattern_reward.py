"""Reasoning pattern reward: PPO with a reward that is raised by phrases of reasoning where a verifier scores low.

Source: "The Climb Carves Wisdom Deeper Than the Summit: On the Noisy Rewards in Learning to Reason", and its release.
Scores below 0.5 become min(s + 0.1 RPR, 1), where RPR is the share of 20 phrases that occur (`rewards/raised`,
`rewards/phrases`). PPO with a critic, GAE with gamma = lambda = 1, one pass over each batch, an entropy bonus of 0.001,
no KL. The paper's other experiments are rewards:

    posttrain run pattern_reward tasks=mine.jsonl model=FOLDER                # columns: prompt, answer
    posttrain run ppo 'reward={kind: noisy, of: match, false_positive: 0.4, false_negative: 0.4}'   # 40 % flipped
    posttrain run ppo reward=phrases evaluation.verifier=match                # RPR alone

Differs: the critic is not trained alone for 20 steps first. The 40 phrases are of this package. The score is that of
the setting's reward, on a scale of 0 to 1, where the release has a reward model; a gate for the tags is `gated`.

Measured here (5 seeds): outcomes flipped with probability 0, 0.2, 0.4 and 0.5 under GRPO (40 steps): held-out sums
73.1, 68.4, 51.3 and 16.8 %; against none -4.7 points [-15.1, +5.7], -21.8 [-28.7, -14.9] and -56.3 [-68.6, -44.0]:
later with more noise, and never at 0.5. With a verifier that misses three in ten, phrases of weight 0.1 changed
nothing: 67.3 against 68.9 %, -1.6 points [-4.6, +1.4]. Phrases alone rose to 0.84 of their reward by being listed, and
no sum was solved: this model has nothing that they could bring out (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gae import GAE
from posttrain.components.penalties.entropy import Entropy
from posttrain.components.rewards.phrases import Phrases
from posttrain.components.rewards.raised import Raised
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.methods.policy_gradient.ppo import with_critic
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.missed_sums import missed_sums

PARENT: Final = "ppo"
SETTING: Final = "missed_sums"
PAPER: Final = "The Climb Carves Wisdom Deeper Than the Summit"
ROWS: Final = (154,)


def pattern_reward(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: low scores raised by phrases of reasoning, lambda 1, a small entropy bonus, no KL."""
    recipe = keep_verifier(with_critic(with_rl(recipe or missed_sums())))
    stage = rl_of(recipe)
    reward = stage.reward
    raised = replace(reward, weight=0.1) if isinstance(reward, Raised) else Raised(of=reward, by=Phrases())
    stage = replace(
        stage,
        reward=raised,
        advantage=GAE(lam=1.0),
        penalties={**stage.penalties, "entropy": Entropy(coefficient=0.001)},
        filters=every_group(stage),
    )
    return with_stage(replace(recipe, name="pattern_reward"), stage)
