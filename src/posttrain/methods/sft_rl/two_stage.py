r"""Two stages: imitation for many epochs, then a few steps of GRPO that shorten the solutions.

Source: arXiv:2507.08267 and its release (kaggle-aimo2-fast-math-r1 at 09bf8ff6): SFT of hard problems with long
reasoning for 10 epochs; then 40 steps of GRPO with 8 rollouts, a KL of 0.04 from the first stage's model, temperature
1, top-p 0.9, min-p 0.05, advantages (r - mean) / (std + 1e-4), and the sum of three rewards:

    format    1 where a boxed answer stands before ``</think>``
    cosine    right answers from 1.0 at length 0 to 0.1 at the limit, wrong ones from -1.0 to -0.1
    length    0.5 - (length - shortest) / (longest - shortest) in the group; for wrong answers only where negative

    posttrain run two_stage tasks=mine.jsonl model=FOLDER    # columns: prompt, completion, answer

Tasks whose reference answer cannot be read have the error of the verifier and are not learned from; the release counts
every answer to them as right. `sft.epochs` is the number of epochs, as checkpoints of each show how it goes on.

`CHANGES`: the epochs, the reward, the truncation of sampling and the constant of the advantage are the paper's.

Differs: the script's 20 epochs are cut by the choice of an earlier checkpoint, here there are 10 as in the paper. The
limit of the cosine is 30,000 characters for 16,384 tokens there, and the same ratio to the most tokens here. Lengths of
the length reward are in tokens.

Measured here: five seeds (200 held-out sums of two and three numbers; docs/experiments.md): accuracy 70.6 % before,
64.5 % after ten epochs of imitating a wordy form, 78.2 % [73.7, 82.7] after GRPO, which shortens greedy answers from
54.9 to 41.7 tokens. With correctness alone as the reward it comes to 78.1 % and 42.4 tokens, 0.7 more [-0.03, +1.4]: it
shortens as well, and the rewards of form and length add at most a token. Other numbers of epochs were not run.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.penalties.kl import KL
from posttrain.components.rewards.brevity import Brevity
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.shaped_length import ShapedLength
from posttrain.components.rewards.sum import Sum
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.models import Model
from posttrain.recipes.changes import (
    every_group,
    keep_verifier,
    rl_of,
    sampling_of,
    sft_of,
    with_models,
    with_stage,
)
from posttrain.recipes.tree import Recipe
from posttrain.settings.wordy_sums import wordy_sums

PARENT: Final = "grpo"
SETTING: Final = "wordy_sums"
PAPER: Final = "arXiv:2507.08267"
ROWS: Final = (89,)
CHANGES: Final = ("reward", "epochs", "rollout.sampling")

IN_THOUGHTS: Final = r"(?s)boxed\{.*\}.*</think>"
CHARACTERS: Final = 30_000 / 16_384
"""The limit of the cosine reward in characters for each of the most tokens."""


def two_stage(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: ten epochs of imitation first, three rewards of form, length and correctness, a KL."""
    recipe = keep_verifier(with_imitation(grpo(recipe or wordy_sums())))
    recipe = with_stage(recipe, replace(sft_of(recipe), epochs=10.0))
    stage = rl_of(recipe)
    sampling = sampling_of(stage)
    limit = round(CHARACTERS * sampling.max_tokens)
    rewards = {
        "answer": Brevity(correct=ShapedLength(correct=stage.reward, limit=limit)),
        "format": Regex(pattern=IN_THOUGHTS),
    }
    stage = replace(
        stage,
        reward=Sum(parts=rewards),
        filters=every_group(stage),
        advantage=GroupMean(epsilon=1e-4),
        penalties={**stage.penalties, "kl": KL(coefficient=0.04)},
    )
    if hasattr(stage.rollout, "sampling"):
        rollout = replace(stage.rollout, sampling=replace(sampling, top_p=0.9, min_p=0.05))  # type: ignore[type-var]
        stage = replace(stage, rollout=rollout)
    recipe = with_models(recipe, {"reference": Model(source="role:policy")})
    return with_stage(replace(recipe, name="two_stage"), stage)
