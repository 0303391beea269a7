r"""Process advantages: beside the reward of success, how much each step raises a prover's chance to succeed.

Source: Setlur et al. 2024, "Rewarding Progress", arXiv:2410.08146, of which the abstract and a technical note were
read. With q the output of a value model after a prefix, held within [0, 1], which estimates the success rate of the
model that it was trained on, the prover is the best of K of its answers:

    Q = 1 - (1 - q)^K        A(step) = Q after the step - Q before it

so that the value before a step is transformed like that after it. The reward of a step is alpha A, a span of the score
at the end of the step. It is immediate credit: take the advantage `immediate`. Under returns the differences telescope.

With K = 1 the prover is the model itself, and with a large K everything succeeds and A is 0.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.engines import Sampler
from posttrain.grading.pieces import Split, ranges_of
from posttrain.signals import Signal
from posttrain.types import Group, IntArray, Score, Trajectory


@frozen
class ProverSteps(Reward):
    """Adds the prover's advantages of steps to the reward of success."""

    correct: Reward
    """The reward of success; it decides what is correct."""
    role: str = "value"
    """The value model; it needs ``head: reward`` and the policy's vocabulary."""
    k: PositiveInt = 4
    """K: the prover is the best of this many answers."""
    alpha: NonNegativeFloat = 1.0
    """Weight of the advantages of steps; up to 5 is quoted for RL."""
    split: Split = "steps"
    """What the steps are."""
    most: Annotated[int, Field(ge=1, le=1024)] = 64
    """Largest number of steps."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The reward of success."""
        return {"correct": self.correct}

    @property
    def roles(self) -> frozenset[str]:
        """The value model, and those of the reward of success."""
        return self.correct.roles | {self.role}

    @property
    def needs(self) -> frozenset[Signal]:
        """The value model's outputs, and what the reward of success needs."""
        return self.correct.needs | {Signal("score", of=self.role)}

    @property
    def spans(self) -> bool:
        """True."""
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score success, and the value of every prefix that ends a step."""
        own = replace(context, state=context.state.setdefault("correct", {}))
        correct = await self.correct.score(group, own)
        sampler = context.sampler(self.role, self.kind)
        return await asyncio.gather(*(self._score(t, score, sampler) for t, score in zip(group, correct, strict=True)))

    async def _score(self, trajectory: Trajectory, correct: Score, sampler: Sampler) -> Score:
        ranges = ranges_of(trajectory.completion, self.split, self.most)
        prompt, written = _parts(trajectory)
        ends = _token_ends(written, [end for _, end in ranges], sampler)
        prefixes = [np.concatenate([prompt, written[:end]]) for end in (0, *ends)]
        outputs = await asyncio.gather(*(sampler.score(prefix) for prefix in prefixes))
        if correct.status == "error":
            return correct
        value = [best_of(output, self.k) for output in outputs]
        rewards = [self.alpha * (after - before) for before, after in pairwise(value)]
        parts = {"correct": correct, "progress": Score(value=float(sum(rewards)), status="ok")}
        return replace(
            correct,
            value=correct.value + float(sum(rewards)),
            explanation=f"{correct.explanation}; values {', '.join(f'{v:.2f}' for v in value)}",
            parts=parts,
            spans=tuple((a, b, reward, "progress") for (a, b), reward in zip(ranges, rewards, strict=True)),
        )


def best_of(success: float, k: int) -> float:
    """The chance that one of k answers succeeds, each of which does with this chance, held within [0, 1]."""
    return 1.0 - (1.0 - min(max(success, 0.0), 1.0)) ** k


def _parts(trajectory: Trajectory) -> tuple[IntArray, IntArray]:
    """The ids of the prompt, and of what was written after it."""
    written = trajectory.completion_ids
    return trajectory.token_ids[: len(trajectory.token_ids) - len(written)], written


def _token_ends(ids: IntArray, ends: Sequence[int], sampler: Sampler) -> list[int]:
    """For each place in the text, ascending, the number of tokens up to it."""
    found: list[int] = []
    tokens = 0
    for end in ends:
        while tokens < len(ids) and len(sampler.decode(ids[:tokens])) < end:
            tokens += 1
        found.append(tokens)
    return found
