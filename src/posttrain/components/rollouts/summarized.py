r"""Rollouts of several turns in which the model may replace its history by a summary; then an episode is several rows.

Source: the environment of Behavior Priming, arXiv:2510.06534, and its released code: a turn that is a
``<summary>...</summary>`` and nothing else, but for a thought before it, replaces all that was written since the task.
The turns before it, the summary's included, are one rollout; those after it are another, whose prompt is the task and
the summary. All have the outcome of the episode (fact `Row`). The advantage ``by_episode`` counts each episode once.

Differs: turns between two summaries are one row, where the release has a row for each turn with the same prompt; the
tokens that are learned are the same. The reminder to summarize above 8,000 tokens is left to the environment.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Contained, Environment, EnvironmentFailed, Episode, with_opening
from posttrain.components.rollouts import Rollout, Row
from posttrain.components.rollouts._continued import continued, record_of
from posttrain.components.rollouts._segments import sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, IntArray, Message, Segment, StopReason, Task, Trajectory


@frozen
class Summarized(Rollout):
    """Samples `n` episodes, each as one rollout or several."""

    environment: Environment
    """What the model acts in."""
    n: PositiveInt = 8
    """Episodes per task."""
    max_turns: PositiveInt = 8
    """Most turns of an episode."""
    sampling: Sampling = Sampling()
    """How each turn is sampled. The stop strings of the environment are added."""
    tag: str = Field(default="summary", pattern=r"^\w+$")
    """Tag of summaries."""
    last: bool = False
    """Whether only the last row of each episode is given, as in evaluation."""

    @property
    def splits_episodes(self) -> bool:
        """Where every row is given."""
        return not self.last

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """The tasks must be tasks of the environment."""
        self.environment.check_alone(tasks)

    def held_out(self, n: int, sampling: Sampling) -> "Summarized":
        """The last row of each episode, which has its outcome."""
        return replace(self, n=n, sampling=sampling, last=True)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of the rows of all episodes."""
        sampler = sampler_of("policy", samplers)
        played = await asyncio.gather(*(self._episode(task, sampler.bind("attempt", i), i) for i in range(self.n)))
        rows = [row for rows in played for row in (rows[-1:] if self.last else rows)]
        return [Group(key=task.key, trajectories=tuple(replace(row, sample=i) for i, row in enumerate(rows)))]

    async def _episode(self, task: Task, sampler: Sampler, number: int) -> list[Trajectory]:
        """The rows of one episode. A failure of the environment ends it."""
        return await continued(sampler, lambda sampler: self._rows(task, sampler, number))

    async def _rows(self, task: Task, sampler: Sampler, number: int) -> list[Trajectory]:
        own, failure = _Progress(), ""
        try:
            async with self.environment.open(task, sampler.uniform, record_of(sampler)) as instance:
                await self._play(instance, own, task, sampler)
                await instance.finish()
                own.facts = replace(own.facts, measures=instance.measures(), verdict=instance.verdict())
        except EnvironmentFailed as error:
            failure = str(error)
            own.rows = own.rows or [[_prompt(task.prompt, sampler)]]
        rows = [row for row in own.rows if any(s.trained for s in row)] or own.rows[:1]
        return [
            Trajectory(
                task=task,
                segments=tuple(row),
                stop_reason=own.stop_reason if i + 1 == len(rows) else "stop",
                facts=(own.facts, Row(episode=number, row=i, counts=i + 1 == len(rows))),
                failure=failure,
            )
            for i, row in enumerate(rows)
        ]

    async def _play(self, instance: Contained, own: "_Progress", task: Task, sampler: Sampler) -> None:
        """Alternate turns of model and environment, and begin a row after each summary."""
        prompt = first = with_opening(task.prompt, instance.begin().text)
        own.rows.append([_prompt(prompt, sampler)])
        ends = tuple(dict.fromkeys((*self.sampling.stop, *self.environment.stop)))
        for turn in range(self.max_turns):
            [completion] = await sampler.sample(own.token_ids, 1, replace(self.sampling, stop=ends))
            text = sampler.decode(completion.token_ids)
            outcome = await instance.step(text)
            segment = replace(sampled_segment(completion, "policy", turn=turn), text=text, reward=float(outcome.reward))
            own.take(segment, outcome.valid)
            if outcome.done:
                cut = completion.stop_reason == "length" or outcome.truncated
                own.stop_reason = "length" if cut else "environment"
                return
            if turn + 1 == self.max_turns:
                return
            if outcome.valid and (summary := self._summary(text)) is not None:
                prompt = with_opening(first, f"{summary}{outcome.observation.text}")
                own.rows.append([replace(_prompt(prompt, sampler), turn=turn + 1)])
            else:
                seen = outcome.observation.text
                ids = sampler.encode_reply(prompt, segment.token_ids, Message(role="user", content=seen))
                own.rows[-1].append(Segment(actor="environment", token_ids=ids, turn=turn + 1, text=seen))
            if len(own.token_ids) >= sampler.context:
                own.rows[-1].pop()
                return

    def _summary(self, text: str) -> str | None:
        """The summary, where a turn is one."""
        pattern = rf"\s*(?:<think>.*?</think>)?\s*<{self.tag}>(.*)</{self.tag}>\s*"
        found = re.fullmatch(pattern, text, re.DOTALL)
        return found[1] if found else None


@dataclass(kw_only=True)
class _Progress:
    """An episode in progress."""

    rows: list[list[Segment]] = field(default_factory=list)
    facts: Episode = field(default_factory=Episode)
    stop_reason: StopReason = "length"

    @property
    def token_ids(self) -> IntArray:
        """All token ids of the present row."""
        return np.concatenate([segment.token_ids for segment in self.rows[-1]])

    def take(self, segment: Segment, valid: bool) -> None:
        """Add a turn of the model."""
        self.rows[-1].append(segment)
        self.facts = replace(
            self.facts,
            valid_turns=(*self.facts.valid_turns, bool(valid)),
            turn_rewards=(*self.facts.turn_rewards, segment.reward),
        )


def _prompt(prompt: str | tuple[Message, ...], sampler: Sampler) -> Segment:
    """A prompt in the ids of the model."""
    ids = sampler.encode(prompt)
    return Segment(actor="prompt", token_ids=ids, text=prompt if isinstance(prompt, str) else sampler.decode(ids))
