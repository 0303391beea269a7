"""CHORD: GRPO and imitation of experts in one loss, with a weight of imitation that decays over the steps.

Source: Zhang et al. 2025, arXiv:2508.11408, and its release. Each step has a batch of rollouts and a batch of expert
rows, independent of its prompts. The loss is (1 - mu) times GRPO's plus mu times the mean of -log p over the experts'
tokens: each part has a normaliser of its own. This is CHORD-mu: mu decays along a cosine from 0.9 to 0.05, without
warm-up. CHORD-phi, the other variant, is the method ``chord_phi``. The settings that ship with the release are neither:
`balance.warmup=200 balance.decay=400 balance.peak=.5 balance.valley=.02 objective.demonstrated.weight=undecided`.

    posttrain run chord tasks=mine.jsonl experts=solutions.jsonl    # columns: prompt, answer; prompt, completion

Without `experts=` the demonstrations are those of the tasks. With mu = 0 it is GRPO to the bit, and with mu = 1 SFT: a
share of 0 leaves its part out, so that nothing is sampled where mu is 1.

Differs: the release takes the means of micro-batches, weighted by their rows; here they are those of the whole step.
The decay takes 200 steps in the paper, and all of the stage's steps here. Log-probabilities of experts' tokens are at
the temperature of sampling, which is 1 in the paper.

Measured here: two families (60 steps of 32 x 4, 5 seeds), held-out letters and sums: GRPO 0 and 70.2 %, SFT for two
epochs and then GRPO 90.0 and 60.8 %, CHORD 20.0 and 63.5 %, CHORD-phi 0 and 67.6 %. Of all answers CHORD has 42.5 %
against GRPO's 36.6 %, +5.9 points [-8.6, +20.4]: no difference that five seeds can show. The sums dip less than with
SFT first: the lowest mean over five steps of sampled sums is 17 %, against 5 %; GRPO's is 42 %. Entropy at the end is
0.122 nats against GRPO's 0.036, +0.086 [0.062, 0.110] (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.balances.scheduled import Scheduled
from posttrain.components.experts.stream import Stream
from posttrain.components.objectives.by_origin import ByOrigin
from posttrain.components.reducers.by_origin import ByOrigin as ByOriginReducer
from posttrain.components.reducers.tokens import Tokens
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import rl_of, rollouts_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.two_families import two_families

PARENT: Final = "grpo"
SETTING: Final = "two_families"
PAPER: Final = "arXiv:2508.11408"
ROWS: Final = (70,)


def chord(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a stream of experts, the likelihood of their tokens, a scheduled balance."""
    recipe = grpo(recipe or two_families())
    stage = rl_of(recipe)
    stage = replace(
        stage,
        experts=Stream(batch=max(stage.prompts * rollouts_of(stage) // 4, 1)),
        balance=Scheduled(decay=stage.steps),
        objective=ByOrigin(sampled=stage.objective),
        reducer=ByOriginReducer(sampled=stage.reducer, demonstrated=Tokens()),
    )
    return with_stage(replace(recipe, name="chord"), stage)
