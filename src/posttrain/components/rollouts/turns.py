"""Attempts in which model and world take turns, each in a fresh world of its own.

The prompt and what the world shows first are encoded once; after that ids are only appended. What the model sampled
stays as it was sampled, and the world's answer is encoded by itself: as text after a text prompt, by the chat template
(what it puts between two turns of the assistant) after messages. Observations are not trained.

Attempts and tasks run side by side, each at its own pace; each attempt has a sampler of its own, so that what it draws
does not depend on how far the others are. An attempt ends when the world says so, after `max_turns`, or when the
context has no room for the next turn; the last two have stop reason ``length``. An attempt whose world failed ends with
a `Trajectory.failure`, and is judged an error.

Each trajectory has an `Episode` that says how it went.

Source: the interaction loop of ReAct, Yao et al. 2022, arXiv:2210.03629; groups of episodes from one initial state as
in GiGPO, Feng et al. 2025, arXiv:2505.10978, section 4.1.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import (
    Contained,
    Environment,
    Episode,
    Observation,
    Outcome,
    WorldFailed,
    with_opening,
)
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Completion, Group, IntArray, Message, Segment, StopReason, Task, Trajectory


@frozen
class Turns(Rollout):
    """`n` attempts of up to `max_turns` turns."""

    environment: Environment
    """The worlds."""
    n: PositiveInt = 8
    """Attempts per task."""
    max_turns: PositiveInt = 8
    """Turns of the model after which an attempt ends anyway."""
    sampling: Sampling = Sampling()
    """How each turn is drawn; `max_tokens` limits one turn. The world's own stop strings are added."""
    speaker: str = "user"
    """In chats, the message role in which the world answers: ``user``, or ``tool`` where the template knows it."""
    role: str = "policy"
    """The model that acts, and whose tokens are trained."""

    @property
    def temperature(self) -> float:
        """Of the distribution that the tokens are drawn from; greedy ones have their log-probability at 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """The tasks must be of the world."""
        self.environment.check(tasks)

    def held_out(self, n: int, sampling: Sampling) -> "Turns":
        """The same world and the same number of turns."""
        return replace(self, n=n, sampling=sampling)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of the `n` attempts."""
        sampler = sampler_of(self.role, samplers)
        attempts = [self._attempt(task, sampler.bind("attempt", i), i) for i in range(self.n)]
        return [Group(key=task.key, trajectories=tuple(await asyncio.gather(*attempts)))]

    async def _attempt(self, task: Task, sampler: Sampler, sample: int) -> Trajectory:
        """One attempt, whatever the world does."""
        story = _Story(prompt=task.prompt)
        failure = ""
        try:
            async with self.environment.open(task, sampler.uniform) as world:
                await self._play(world, story, sampler)
                story.judge(world)
        except WorldFailed as error:
            failure = str(error)
            story.segments = story.segments or [_prompt(story.prompt, sampler)]
        return Trajectory(
            task=task,
            segments=tuple(story.segments),
            stop_reason=story.stop_reason,
            sample=sample,
            facts=(story.episode,),
            failure=failure,
        )

    async def _play(self, world: Contained, story: "_Story", sampler: Sampler) -> None:
        """Take turns until the end."""
        seen = world.begin()
        story.prompt = with_opening(story.prompt, seen.text)
        story.segments = [_prompt(story.prompt, sampler)]
        own = self.sampling.stop
        sampling = replace(self.sampling, stop=(*own, *(s for s in self.environment.stop if s not in own)))
        for turn in range(self.max_turns):
            (completion,) = await sampler.sample(story.token_ids, 1, sampling)
            text = sampler.decode(completion.token_ids)
            outcome = await world.step(text)
            story.take(self._segment(completion, text, turn, seen, outcome), outcome)
            if outcome.done:
                story.stop_reason = "length" if completion.stop_reason == "length" else "environment"
                return
            seen = outcome.observation
            observed = self._observed(story.prompt, completion, seen, turn + 1, sampler)
            if turn + 1 == self.max_turns or len(story.token_ids) + len(observed) >= sampler.context:
                return
            story.segments.append(observed)

    def _segment(self, completion: Completion, text: str, turn: int, seen: Observation, outcome: Outcome) -> Segment:
        """The model's turn, with what it saw and what it earned."""
        key = seen.text if seen.state_key is None else seen.state_key
        segment = sampled_segment(completion, self.role, turn=turn)
        return replace(segment, state_key=key, reward=float(outcome.reward), text=text)

    def _observed(
        self, prompt: str | tuple[Message, ...], completion: Completion, seen: Observation, turn: int, sampler: Sampler
    ) -> Segment:
        """What the world answers, in ids that go on from the model's turn."""
        reply = Message(role=self.speaker, content=seen.text)
        token_ids = sampler.encode_reply(prompt, completion.token_ids, reply)
        return Segment(actor="environment", token_ids=token_ids, turn=turn, text=seen.text)


@dataclass(kw_only=True)
class _Story:
    """An attempt as far as it has come."""

    prompt: str | tuple[Message, ...]
    segments: list[Segment] = field(default_factory=list)
    stop_reason: StopReason = "length"
    episode: Episode = field(default_factory=Episode)

    @property
    def token_ids(self) -> IntArray:
        """Everything so far."""
        return np.concatenate([segment.token_ids for segment in self.segments])

    def take(self, segment: Segment, outcome: Outcome) -> None:
        """Note a turn."""
        self.segments.append(segment)
        self.episode = replace(
            self.episode,
            valid_turns=(*self.episode.valid_turns, bool(outcome.valid)),
            turn_rewards=(*self.episode.turn_rewards, segment.reward),
        )

    def judge(self, world: Contained) -> None:
        """Note what the world says of it all."""
        self.episode = replace(self.episode, measures=world.measures())
        self.episode = replace(self.episode, verdict=world.verdict())


def _prompt(prompt: str | tuple[Message, ...], sampler: Sampler) -> Segment:
    """The prompt with what the world shows first, in the ids of the model."""
    token_ids = sampler.encode(prompt)
    return Segment(
        actor="prompt", token_ids=token_ids, text=prompt if isinstance(prompt, str) else sampler.decode(token_ids)
    )
