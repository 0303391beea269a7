"""Backtracking: SFT on traces with a given number of dead ends, then GRPO with a partial reward.

Source: Cai et al. 2025, arXiv:2505.24273, and its release: made traces with 0 to 3 dead ends (`tasks.dead_ends`), then
GRPO with 8 rollouts per task, without KL and without an entropy bonus. Reward 1 for a solution, 0.1 for an expression
that is none, 0 without an expression.

    posttrain run backtracking tasks.dead_ends=3
    posttrain run backtracking tasks.tasks=mine.jsonl    # fields: numbers ([3, 5, 2]), target (25), answer (5*(3+2))
    posttrain compare "backtracking tasks.dead_ends=0" "backtracking tasks.dead_ends=1" --seeds 5
    posttrain diagnose backtracks RUN tasks=backtracked verifier=countdown    # dead ends in its answers

`tasks.content=wrong` and `tasks.content=shuffled` are the arms that test whether the content of traces matters;
`stages.sft.tasks=countdown` imitates short solutions.

Differs: countdown only, of three numbers (the paper: eight puzzles, countdown of four to six). 128 prompts per step and
a learning rate of 1e-6 are a large model's.

Measured here: five seeds, 238 steps of SFT and 30 of GRPO, held-out accuracy of 200 tasks: without dead ends 35.4 %
after SFT and 35.6 % after GRPO; with one 21.9 and 19.2 %, at 2.4 times the sampled tokens: 16.4 points less at the end
[-23.1, -9.7], and no gain from GRPO in either (+0.2 points [-5.0, +5.4] and -2.7 [-9.7, +4.3]). The paper's order is
not seen (docs/experiments.md). With three, and limits of 320 tokens, 8.9 % after SFT, and at equal sampled tokens, 6
steps of GRPO, 5.5 %: 30.1 points less than without [-35.8, -24.4]. With 40 steps of SFT, 213,000 tokens (without dead
ends: 241,000), it is 0 % in every seed.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.countdown import Countdown
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of, sft_of, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.traced_countdown import traced_countdown
from posttrain.stages.sft import SFT

PARENT: Final = "grpo"
SETTING: Final = "traced_countdown"
PAPER: Final = "arXiv:2505.24273"
ROWS: Final = (28,)


def backtracking(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: imitation of traces first, and a partial reward."""
    recipe = replace(keep_verifier(grpo(recipe or traced_countdown())), name="backtracking")
    stage = rl_of(recipe)
    if isinstance(stage.reward, Countdown):
        stage = replace(stage, reward=replace(stage.reward, wrong=0.1))
        recipe = with_stage(recipe, stage)
    if any(isinstance(other, SFT) for other in recipe.stages.values()):
        return recipe
    imitation = sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=1e-3))
    return with_stages_before(recipe, {"sft": replace(imitation, epochs=2.0, learner=learner)}, rl_of(recipe))
