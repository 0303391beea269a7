"""Completions that are sampled in parts: what is not finished within a budget goes on in the next step.

Source: partial rollouts of Kimi k1.5, arXiv:2501.12599, section 2.6.2: each iteration has a fixed budget of tokens for
a response; one that is not finished is stored, and goes on from there in the next iteration, so that a few long
responses do not hold up a step. Only the newest part is sampled by the current policy. Each part is a segment with the
log-probabilities and the version of the weights that sampled it: ratios of tokens are to these. `earlier: exclude`
leaves earlier parts out of the loss, as the report allows.

A group is scored and learned from in the step in which its last completion ends; until then it takes the place of a new
task. With a `budget` of at least `max_tokens` this is `independent`.

Differs: a stop string is found within one part only. Repetitions do not end a completion early.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._segments import answers, prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Segment, Task, Trajectory


@frozen
class Partial(Rollout):
    """Samples `n` completions of the prompt, in parts."""

    n: PositiveInt = 8
    """Completions per task."""
    budget: PositiveInt = 128
    """Most tokens of a completion in one step."""
    earlier: Literal["learn", "exclude"] = "learn"
    """Whether parts of earlier steps are learned from."""
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

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group of `n` trajectories; it has no scores if one of them is not finished."""
        sampler = sampler_of(self.role, samplers)
        prompt = prompt_segment(task, sampler)
        first = replace(self.sampling, max_tokens=min(self.budget, self._most))
        completions = await sampler.sample(prompt.token_ids, self.n, first, prompt.vectors)
        group = Group(key=task.key, trajectories=answers(task, prompt, completions, self.role))
        return [await self._ended(group, sampler, scorer)]

    async def go_on(self, group: Group, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """The group with the next part of each completion that is not finished."""
        sampler = sampler_of(self.role, samplers)
        longer = await asyncio.gather(*(self._longer(t, sampler) for t in group))
        return [await self._ended(replace(group, trajectories=tuple(longer)), sampler, scorer)]

    async def _longer(self, trajectory: Trajectory, sampler: Sampler) -> Trajectory:
        room = self._room(trajectory, sampler)
        if not room:
            return trajectory
        sampling = replace(self.sampling, max_tokens=min(self.budget, room))
        writer = sampler.bind("part", len(trajectory.segments), trajectory.sample)
        [completion] = await writer.sample(trajectory.token_ids, 1, sampling, trajectory.vectors)
        segments = (*trajectory.segments, sampled_segment(completion, self.role))
        return replace(trajectory, segments=segments, stop_reason=completion.stop_reason)

    async def _ended(self, group: Group, sampler: Sampler, scorer: Scorer) -> Group:
        """The group with scores if all are finished, and without earlier parts among what is trained."""
        if any(self._room(t, sampler) for t in group):
            return group
        scored = await scorer(group)
        if self.earlier == "learn":
            return scored
        return replace(scored, trajectories=tuple(replace(t, segments=_newest(t.segments)) for t in scored))

    @property
    def _most(self) -> int:
        return int(self.sampling.max_tokens)

    def _room(self, trajectory: Trajectory, sampler: Sampler) -> int:
        """Tokens that may still come; 0 for a completion that is finished."""
        if trajectory.stop_reason != "length":
            return 0
        written = sum(len(s) for s in trajectory.segments if s.actor == self.role)
        return max(min(self._most - written, sampler.context - len(trajectory.token_ids)), 0)


def _newest(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """The segments, of which only the last one is trained."""
    return (*(replace(segment, trained=False) for segment in segments[:-1]), segments[-1])
