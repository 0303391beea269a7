"""AsyncFlow: GRPO on a stream of samples, with updates that reach the samplers one step late.

Source: arXiv:2507.01663. Samples go through a table, from which each task of a step takes the rows that are ready for
it; sampling goes on while a step is learned from, with the weights before it. What is learned from is at most one step
old, by construction. Ratios are to the weights that sampled.

    posttrain run asyncflow schedule.eta=3 schedule.oldest=3
    posttrain run asyncflow cluster=ray cluster.samplers=2

It needs what GRPO needs: rows with a prompt and an answer (`tasks=mine.jsonl`).

The table is `posttrain.stages.rl.table`: flags for each consumer, choice by order, by whole groups, or balanced by
tokens, with the version as a column; what a consumer took and did not use is given back, where the released queue loses
it. A completion has one version: it is one piece, and new weights are loaded between pieces. `posttrain cluster plan`
finds the devices of each task.

Differs: which samples end first is decided by numbers of tokens, not by a clock, so that a run repeats and resumes bit
for bit. Several models with tasks of their own (reference, reward) are computed when a batch is learned from, not as
consumers on other machines. Updates within a step are not staggered, as in the release.

Measured here: two threads that sleep for 4 ms of sampling, 3 ms of learning and 1 ms of weights, through this table,
200 steps, five times: 8.43 ms a step [8.41, 8.45] without a delay, 4.28 [4.28, 4.28] with one of one step, 1.97 times
as fast [1.96, 1.97], and 4.28 with three: none beyond. On softmax bandits, five seeds, PPO's clip against the sampler
ends at 0.983 [0.981, 0.985] of the best reward with lags of 0 and 1, at 0.974 [0.972, 0.976] with 4
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.timetables.streaming import Streaming
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.tree import Recipe

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2507.01663"
ROWS: Final = (131,)


def asyncflow(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: samples from a stream, at most one step old."""
    schedule = Streaming(eta=1, piece=65536, learning=1, oldest=1, too_old="wait")
    return replace(grpo(recipe), name="asyncflow", schedule=schedule)
