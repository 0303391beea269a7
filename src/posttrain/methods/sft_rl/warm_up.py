"""Warm up before you train: imitation of puzzle traces first, then GRPO on at most 100 target tasks.

Source: arXiv:2505.13718 and its release (warmup-before-you-train at c9c4a428): five epochs of SFT on long traces for
puzzles of knights and knaves, at a constant rate after 25 steps of warm-up and with gradients clipped at 0.1; then GRPO
on 100 examples, each seen 25 times, with 10 rollouts at temperature 0.7 and top-p 0.95, without a KL, with gradients
clipped at 0.1, and a reward of four levels: -2 for a broken form, -1 for no readable answer, -0.5 for a wrong one, 2
for the right one. The form is one ``<think>...</think>`` and one ``<answer>...</answer>`` at the end.

    posttrain run warm_up tasks=mine.jsonl tasks.limit=100 model=FOLDER    # columns: prompt, answer

The puzzles and their traces are made here: `posttrain.components.tasks.knights`. Traces of your own:
`warm_up.tasks=traces.jsonl`, with columns prompt and completion.

`CHANGES`: the reward, the temperature and the sampler's truncation are the paper's.

Differs: the traces are those of a search that tries, contradicts and returns, not of a reasoning model, and all of them
are right; both arms exist in the release. There is one limit of length for sampler and loss, where the release has two.
The number of steps is the setting's: 40 steps of 10 tasks see each of 100 four times.

Measured here, five seeds, 150 held-out sums: 37.5 % of the base, 29.9 % after the warm-up, 36.9 % after GRPO; without a
warm-up GRPO comes to 38.7 %. With 50 puzzles in the mean, the difference is -0.6 points [-2.6, +1.4]: GRPO gives back
what the warm-up cost, at twice the tokens, and no more. Of puzzles 2.8 % are solved with it, none without. So the
paper's gain is not seen at this size (docs/experiments.md, docs/stages.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.levels import Levels
from posttrain.components.schedules.constant import Constant
from posttrain.components.tasks.knights import Knights
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of, sampling_of, sft_of, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.hundred_sums import hundred_sums
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "hundred_sums"
PAPER: Final = "arXiv:2505.13718"
ROWS: Final = (320,)
CHANGES: Final = ("reward", "rollout.sampling")


def warm_up(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a stage of imitated puzzles before it, a reward of four levels, no KL, gentle gradients."""
    recipe = keep_verifier(grpo(recipe or hundred_sums()))
    stage = rl_of(recipe)
    puzzles = replace(
        sft_of(demonstrations()),
        epochs=5.0,
        learner=Learning(optimizer=AdamW(lr=5e-4, betas=(0.9, 0.95)), schedule=Constant(warmup=0.05), clip_norm=0.1),
        batch=16,
        tasks=Knights(size=160, people=(3, 3)),
    )
    recipe = with_stages_before(recipe, {"warm_up": puzzles}, stage)
    changed = replace(
        stage,
        reward=Levels(correct=stage.reward, form=Format()),
        learner=replace(stage.learner, clip_norm=0.1),
    )
    if hasattr(stage.rollout, "sampling"):
        sampling = replace(sampling_of(stage), temperature=0.7, top_p=0.95)
        changed = replace(changed, rollout=replace(stage.rollout, sampling=sampling))  # type: ignore[type-var]
    return with_stage(replace(recipe, name="warm_up"), changed)
