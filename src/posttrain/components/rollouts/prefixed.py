"""Completions of a prompt, some of which continue a prefix of a demonstration.

Source: Prefix-RFT, Huang et al. 2025, arXiv:2507.01679: n - 1 ordinary rollouts and one hybrid in a group. The length
of the prefix is drawn for each hybrid, uniformly between a low share of the demonstration, which decays along a cosine
during training, and a constant high share. The prefix has at least one token, and at least one token is sampled.

Differs: a prefix that leaves no room in the context is cut, as in the released code. A task without demonstrations has
ordinary rollouts only.
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
    """Samples `n` completions of the prompt, the last ones after a prefix."""

    n: PositiveInt = 8
    """Completions per task, hybrids included."""
    hybrids: NonNegativeInt = 1
    """Number of completions with a prefix, each drawn independently."""
    high: Share = 0.95
    """Largest share of a demonstration in a prefix, and the smallest share when the stage begins."""
    low: Share = 0.05
    """Smallest share when the stage ends."""
    trained: bool = True
    """Whether the prefix is trained too, as tokens of a demonstration."""
    sampling: Sampling = Sampling()
    """How the continuations and the ordinary completions are sampled."""
    role: str = "policy"
    """The model that is sampled from."""

    @model_validator(mode="after")
    def check_shares(self) -> Self:
        """Refuse a low share above the high one."""
        if self.low > self.high:
            raise PydanticCustomError("share", "low is above high; the shares of a prefix are drawn between them")
        return self

    @property
    def follows_progress(self) -> bool:
        """The share of a prefix falls over the stage."""
        return self.low != self.high

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """At least one task must have a demonstration."""
        check_demonstrations(tasks, self.kind)

    def at(self, progress: float) -> "Prefixed":
        """The rollout with `low` at this progress of the stage: a cosine from `high` to `low`."""
        return replace(self, low=self.low + (self.high - self.low) * (1.0 + math.cos(math.pi * progress)) / 2.0)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group: ordinary rollouts, then hybrids."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        hybrids = min(self.hybrids, self.n) if task.demonstrations else 0
        parts = await asyncio.gather(
            self._ordinary(task, prompt, sampler, self.n - hybrids),
            *(self._hybrid(task, prompt, sampler, sample=self.n - hybrids + i) for i in range(hybrids)),
        )
        return [Group(key=task.key, trajectories=tuple(rollout for part in parts for rollout in part))]

    async def _ordinary(self, task: Task, prompt: Segment, sampler: Sampler, n: int) -> tuple[Trajectory, ...]:
        """Rollouts without a prefix."""
        completions = await sampler.sample(prompt.token_ids, n, self.sampling, prompt.vectors)
        return answers(task, prompt, completions, self.role)

    async def _hybrid(self, task: Task, prompt: Segment, sampler: Sampler, sample: int) -> tuple[Trajectory, ...]:
        """One rollout that continues a prefix of one of the demonstrations."""
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
