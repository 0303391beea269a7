"""More completions of a prompt than are learned from: the group is the first of them that end.

Source: APRIL, arXiv:2509.18521, which begins more rollouts than are needed and stops when enough have ended. What did
not end goes on in a later step there.

A few long completions hold up a step. So `over` more are begun, and when `n` have ended, the others are dropped: they
have no tokens in the loss, and their tokens are sampled in vain, at most `piece` of each after the group is full.

What ends first is decided by numbers of tokens, not by a clock: all completions of a group write a piece, then those
that have not ended the next one. Among those that end in the same piece shorter ones are first, then those with smaller
numbers. With ``over=0`` and a piece of at least ``max_tokens`` this is `independent`.

The group is biased: long completions are in it less often than they are written. What is learned from it favours short
ones, and where length goes with difficulty, easy ones.

Differs: what did not end is dropped. Pieces of a completion are segments of their own, and a stop string is found
within one piece only.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import answers, prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task, Trajectory


@frozen
class FirstEnded(Rollout):
    """Samples `n` + `over` completions, and keeps the `n` that end first."""

    n: PositiveInt = 8
    """Completions per task that are learned from."""
    over: Annotated[int, Field(ge=0, le=65536)] = 2
    """Completions that are begun beside these."""
    piece: Annotated[int, Field(ge=1, le=65536)] = 32
    """Tokens of a completion after which it is counted how many have ended."""
    sampling: Sampling = Sampling()
    """How each completion is sampled; `max_tokens` is that of the whole."""
    role: str = "policy"
    """The model that is sampled from and trained."""

    @property
    def group_size(self) -> int:
        """The setting `n`."""
        return self.n

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` trajectories, in the order of their numbers."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        first = replace(self.sampling, max_tokens=min(self.piece, self.sampling.max_tokens))
        completions = await sampler.sample(prompt.token_ids, self.n + self.over, first, prompt.vectors)
        going = answers(task, prompt, completions, self.role)
        ended: list[Trajectory] = []
        while True:
            ended += sorted((t for t in going if not self._room(t, sampler)), key=self._written)
            going = tuple(t for t in going if self._room(t, sampler))
            if len(ended) >= self.n or not going:
                break
            going = tuple(await asyncio.gather(*(self._longer(t, sampler) for t in going)))
        return [Group(key=task.key, trajectories=self._numbered(ended[: self.n]))]

    async def _longer(self, trajectory: Trajectory, sampler: Sampler) -> Trajectory:
        sampling = replace(self.sampling, max_tokens=min(self.piece, self._room(trajectory, sampler)))
        writer = sampler.bind("part", len(trajectory.segments), trajectory.sample)
        [completion] = await writer.sample(trajectory.token_ids, 1, sampling, trajectory.vectors)
        segments = (*trajectory.segments, sampled_segment(completion, self.role))
        return replace(trajectory, segments=segments, stop_reason=completion.stop_reason)

    def _numbered(self, chosen: Sequence[Trajectory]) -> tuple[Trajectory, ...]:
        """In the order in which they were begun, numbered from 0."""
        ordered = sorted(chosen, key=lambda trajectory: trajectory.sample)
        return tuple(replace(trajectory, sample=number) for number, trajectory in enumerate(ordered))

    def _written(self, trajectory: Trajectory) -> int:
        return sum(len(segment) for segment in trajectory.segments if segment.actor == self.role)

    def _room(self, trajectory: Trajectory, sampler: Sampler) -> int:
        """Tokens that may still come; 0 for a completion that has ended."""
        if trajectory.stop_reason != "length":
            return 0
        left = int(self.sampling.max_tokens) - self._written(trajectory)
        return max(min(left, sampler.context - len(trajectory.token_ids)), 0)
