r"""Each token is rewarded with what it adds to the value of the text so far, by a model that estimates it.

Source: IRCoCo, arXiv:2401.16637, and its release (Libolun-star/IRCoCo at 17199313, Datasets/apps_dataset.py):

    r_t = V(prompt + y_1..t) - V(prompt + y_1..t-1)

rounded to 4 decimals; the end token has 0. V is the output of the model in `role` after the last token, such as the
stage `value_model` trains. The rewards sum to V of the whole text less V of the prompt. Each is a span of the score, at
its own token: with the advantage `immediate` it is the credit of that token alone.

A text that the model likes is rewarded whatever it is; what is correct is decided by another reward, which is recorded
and not added.

Differs: tokens without a character of their own have no reward of their own; theirs is that of the next one.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.engines import Sampler
from posttrain.signals import Signal
from posttrain.types import Group, Score, Trajectory


@frozen
class Increments(Reward):
    """Rewards tokens with the increments of a value model."""

    correct: Reward
    """Decides what is correct; recorded as a part."""
    role: str = "value"
    """The value model; it needs ``head: reward`` and the policy's vocabulary."""
    decimals: Annotated[int, Field(ge=0, le=12)] = 4
    """To how many decimals increments are rounded."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """What decides what is correct."""
        return {"correct": self.correct}

    @property
    def roles(self) -> frozenset[str]:
        """The value model, and those of the other reward."""
        return self.correct.roles | {self.role}

    @property
    def needs(self) -> frozenset[Signal]:
        """The value model's outputs, and what the other reward needs."""
        return self.correct.needs | {Signal("score", of=self.role)}

    @property
    def spans(self) -> bool:
        """True."""
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Read the values after all tokens."""
        own = replace(context, state=context.state.setdefault("correct", {}))
        correct = await self.correct.score(group, own)
        sampler = context.sampler(self.role, self.kind)
        return await asyncio.gather(*(self._score(t, score, sampler) for t, score in zip(group, correct, strict=True)))

    async def _score(self, trajectory: Trajectory, correct: Score, sampler: Sampler) -> Score:
        written = trajectory.completion_ids
        prompt = trajectory.token_ids[: len(trajectory.token_ids) - len(written)]
        ends = [0]
        cuts = [0]
        for count in range(1, len(written) + 1):
            end = min(len(sampler.decode(written[:count])), len(trajectory.completion))
            if end > ends[-1]:
                ends.append(end)
                cuts.append(count)
        values = await asyncio.gather(*(sampler.score(np.concatenate([prompt, written[:cut]])) for cut in cuts))
        if correct.status == "error":
            return correct
        if not np.isfinite(values).all():
            return failure("the value model gives a value that is not a number; it has to be trained again")
        rewards = [round(after - before, self.decimals) for before, after in pairwise(values)]
        return replace(
            correct,
            value=float(sum(rewards)),
            explanation=f"{correct.explanation}; value {values[0]:.3f} to {values[-1]:.3f}",
            parts={"correct": correct},
            spans=tuple((a, b, reward, "increment") for (a, b), reward in zip(pairwise(ends), rewards, strict=True)),
        )
