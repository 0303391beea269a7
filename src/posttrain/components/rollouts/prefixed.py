"""Completions of a prompt, some of which begin with the first part of a demonstration and are finished by the policy.

Source: Prefix-RFT, Huang et al. 2025, arXiv:2507.01679: n - 1 ordinary attempts and a hybrid one in a group. How much
of the demonstration is given is drawn anew for each hybrid, uniformly between a low share, which falls along a cosine
as training goes on, and a high one that stays. At least one token is given, and at least one is left to write.

Differs: a demonstration that leaves the policy no room to write is cut shorter, as in the released code; a task without
demonstrations is attempted without help.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Self

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Prefix, Rollout
from posttrain.components.rollouts._segments import (
    answers,
    check_demonstrations,
    prompt_segment,
    sampled_segment,
    sampler_of,
)
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Segment, Task, Trajectory

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class Prefixed(Rollout):
    """`n` completions of the task's prompt, the last of them with a head start."""

    n: PositiveInt = 8
    """Completions per task, hybrids included."""
    hybrids: NonNegativeInt = 1
    """How many of them begin with a part of a demonstration, each drawn by itself."""
    high: Share = 0.95
    """Largest share of a demonstration that is given, and the smallest one when training begins."""
    low: Share = 0.05
    """Smallest share when training ends."""
    trained: bool = True
    """Whether the given part is learned from too, as tokens of a demonstration."""
    sampling: Sampling = Sampling()
    """How the rest is drawn."""
    role: str = "policy"
    """The model that writes."""

    @model_validator(mode="after")
    def check_shares(self) -> Self:
        """Refuse a window that is none."""
        if self.low > self.high:
            raise PydanticCustomError("share", "low is above high; the shares of a prefix are drawn between them")
        return self

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """Some task must have a demonstration."""
        check_demonstrations(tasks, self.kind)

    def at(self, progress: float) -> "Prefixed":
        """With the smallest share as it is at this point of the stage: a cosine from `high` to `low`."""
        return replace(self, low=self.low + (self.high - self.low) * (1.0 + math.cos(math.pi * progress)) / 2.0)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group: ordinary attempts, then hybrids."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        hybrids = min(self.hybrids, self.n) if task.demonstrations else 0
        parts = await asyncio.gather(
            self._ordinary(task, prompt, sampler, self.n - hybrids),
            *(self._hybrid(task, prompt, sampler, sample=self.n - hybrids + i) for i in range(hybrids)),
        )
        return [Group(key=task.key, trajectories=tuple(attempt for part in parts for attempt in part))]

    async def _ordinary(self, task: Task, prompt: Segment, sampler: Sampler, n: int) -> tuple[Trajectory, ...]:
        """Attempts without help."""
        completions = await sampler.sample(prompt.token_ids, n, self.sampling, prompt.vectors)
        return answers(task, prompt, completions, self.role)

    async def _hybrid(self, task: Task, prompt: Segment, sampler: Sampler, sample: int) -> tuple[Trajectory, ...]:
        """One attempt that goes on from a part of one of the demonstrations."""
        text = task.demonstrations[int(sampler.uniform() * len(task.demonstrations))]
        share = self.low + (self.high - self.low) * sampler.uniform()
        whole = sampler.encode_completion(task.prompt, text)
        room = sampler.context - len(prompt) - 1
        given = whole[: max(0, min(max(1, int(share * len(whole))), len(whole) - 1, room))]
        prefix = Segment(
            actor="demonstration",
            token_ids=given,
            trained=self.trained,
            text=sampler.decode(given) if len(given) else "",
        )
        before = np.concatenate([prompt.token_ids, given])
        [completion] = await sampler.sample(before, 1, self.sampling, prompt.vectors)
        segments = (prompt, prefix, sampled_segment(completion, self.role))
        facts = (Prefix(prefix_tokens=len(given), prefix_share=share),)
        stop = completion.stop_reason
        return (Trajectory(task=task, segments=segments, stop_reason=stop, sample=sample, facts=facts),)
