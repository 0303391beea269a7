"""Fine-Grained RLHF: PPO with rewards of sub-sentences, sentences and whole responses, each at the end of its part.

Source: Wu et al. 2023, arXiv:2306.01693, and its release (long-form question answering). The rewards are the setting's,
scored for each sentence and given at its last token (`rewards/segments`); several with densities of their own are a
`sum`, whose weights change the behaviour. KL in the reward with 0.3, GAE with lambda 0.95, whitened rewards, value
clip 0.2.

    posttrain run fine_grained_rlhf tasks=mine.jsonl model=FOLDER 'reward.of={kind: function, path: ./mine.py:score}'
    # columns: prompt; score(completion) gets one sentence: 1 is good. Several rewards, with A and B of your own:
    # reward={kind: sum, parts: {fits: {kind: segments, of: A, split: sub_sentences}, true: {kind: segments, of: B}}}

The release divides by the root of the standard deviation where it whitens (`advantage.divisor=sqrt_std`), and starts
the recursion at whitened padding (`advantage.padded=true`). The rewards of parts sum to the value of the score before
the KL terms. A holistic reward is the same with `reward.placed=false`.

Differs: two epochs of two minibatches, as in `ppo`, where the release has four passes. Rules or models of the user
score parts; the release has token classifiers for sub-sentences and sentences, and normalises its reward for
completeness. Detoxification, the paper's second task, is not in its release.

Measured here (30 steps, 5 seeds): bad sentences of a sampled text, mean over the steps, 0.098 with rewards at the ends
of sentences and 0.114 with their sum at the end of the text; lower in every seed, -0.016 [-0.035, +0.003]. Standard
deviation of advantages before whitening 1.49 against 1.58, -0.10 [-0.47, +0.28]. With 0.6 for each good sentence the
bad ones are fewer, 0.079, -0.035 [-0.064, -0.005], and texts are no longer (10.9 tokens in all): the KL term holds them
at two sentences (docs/experiments.md).

By a table with a critic of its own (`docs/experiments/sentence_tables.py`, five seeds), unwanted words are fewer over
60 steps with rewards at the ends of sentences, by -0.0027 [-0.0043, -0.0012] of 0.148 a text, and the standard
deviation of advantages in the first ten is 0.410 against 0.474, -0.063 [-0.068, -0.059]. Where later sentences are
worse and each adds 0.5, weights of 0, 0.5, 1, 2 and 4 for bad ones make texts of 5.97, 5.84, 3.07, 1.99 and 1.02
sentences.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gae import GAE
from posttrain.components.penalties.kl import KL
from posttrain.components.rewards import Reward
from posttrain.components.rewards.segments import Segments
from posttrain.components.rewards.sum import Sum
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.banned_word import banned_word

PARENT: Final = "ppo"
SETTING: Final = "banned_word"
PAPER: Final = "arXiv:2306.01693"
ROWS: Final = (216,)


def fine_grained_rlhf(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: rewards at the ends of sentences, whitened with their mean kept, and a stronger KL term."""
    recipe = ppo(keep_verifier(recipe or banned_word()))
    stage = rl_of(recipe)
    stage = replace(
        stage,
        reward=in_parts(stage.reward),
        advantage=GAE(whiten_rewards=True),
        penalties={**stage.penalties, "kl": KL(coefficient=0.3, form="k1", where="reward")},
    )
    return with_stage(replace(recipe, name="fine_grained_rlhf"), stage)


def in_parts(reward: Reward) -> Reward:
    """The reward with its parts placed; one for whole completions scores sentences."""
    if isinstance(reward, Segments):
        return replace(reward, placed=True)
    if isinstance(reward, Sum) and reward.spans:
        return reward
    return Segments(of=reward)
