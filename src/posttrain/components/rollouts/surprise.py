"""Two roles act alternately in rounds as one body: Explore seeks surprise, Control makes observations predictable.

Source: Adversarial Surprise, arXiv:2107.07394, and its released code. Rounds of Explore and Control alternate, Explore
first. In the second half of a round of Control each observation is scored by its log-probability under the counts of
those that were scored before in the episode, and then stored: the reward of Control's turn. Explore is rewarded at the
last turn of its round, with minus the sum of Control's rewards in the round after it. So the game has sum zero, pair of
rounds by pair of rounds.

Both read the observation, the likeliest word so far with its share, and the rounds and turns that are left. Each
learns from its own turns: an episode is two rollouts, in which the other role's turns are text.

Differs: rewards are divided by a constant, the surprise of a word that was never seen, where the release divides by a
running standard deviation of returns, which is unreliable at the start. An observation is split into words, one place
each; density models for pictures are left out.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Contained, Environment, EnvironmentFailed, Episode, with_opening
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._continued import continued, record_of
from posttrain.components.rollouts._segments import sampled_segment, sampler_of
from posttrain.components.rollouts._surprise import GREATEST, Density, turn_of
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, IntArray, Message, Segment, StopReason, Task, Trajectory


@frozen
class Surprise(Rollout):
    """Samples `n` episodes, each as a rollout of either role."""

    environment: Environment
    """What both act in."""
    n: PositiveInt = 4
    """Episodes per task."""
    rounds: Annotated[int, Field(ge=2, le=1000)] = 4
    """Rounds of an episode, both roles counted."""
    length: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Turns of a round (32 in the paper)."""
    quiet: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.5
    """Share of a round of Control, at its start, that is neither scored nor stored."""
    buffer: Literal["episode", "round"] = "episode"
    """When the counts start anew."""
    sampling: Sampling = Sampling(max_tokens=4)
    """How each turn is sampled. The stop strings of the environment are added."""
    control_role: str = "control"
    """Role of Control; Explore is the policy."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def roles(self) -> frozenset[str]:
        """Control."""
        return frozenset({self.control_role})

    def check(self, tasks: Sequence[Task]) -> None:
        """The tasks must be tasks of the environment."""
        self.environment.check_alone(tasks)

    def held_out(self, n: int, sampling: Sampling) -> Turns:
        """Explore alone, for as many turns."""
        return Turns(environment=self.environment, n=n, max_turns=self.rounds * self.length, sampling=sampling)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """A group of rollouts of Explore, and one of those of Control, where it acted."""
        roles = ("policy", self.control_role)
        both = [sampler_of(role, samplers) for role in roles]
        played = await asyncio.gather(*(self._episode(task, both, i) for i in range(self.n)))
        groups = [tuple(t for episode in played if (t := episode.rollout(task, role)) is not None) for role in roles]
        keys = (task.key, f"{task.key}/{self.control_role}")
        return [Group(key=key, trajectories=own) for key, own in zip(keys, groups, strict=True) if own]

    async def _episode(self, task: Task, both: Sequence[Sampler], sample: int) -> "_Episode":
        """One episode. A failure of the environment ends it."""
        key = both[0].bind("surprise", sample)
        return await continued(key, lambda _: self._played(task, both, sample))

    async def _played(self, task: Task, both: Sequence[Sampler], sample: int) -> "_Episode":
        episode = _Episode(sample=sample)
        bound = [sampler.bind("surprise", sample, i) for i, sampler in enumerate(both)]
        try:
            async with self.environment.open(task, bound[0].uniform, record_of(bound[0])) as instance:
                await self._play(instance, episode, task, bound)
                await instance.finish()
                episode.facts = replace(episode.facts, measures=instance.measures(), verdict=instance.verdict())
        except EnvironmentFailed as error:
            episode.failure = str(error)
            if not episode.segments:
                ids = bound[0].encode(task.prompt)
                episode.segments = [Segment(actor="prompt", token_ids=ids, text=bound[0].decode(ids))]
        return episode

    async def _play(self, instance: Contained, episode: "_Episode", task: Task, both: Sequence[Sampler]) -> None:
        """Alternate rounds until the end, and credit both roles."""
        density, seen, whole = Density(), instance.begin(), self.rounds * self.length
        prompt = with_opening(task.prompt, seen.text + self._status(density, 0))
        ids = both[0].encode(prompt)
        episode.segments = [Segment(actor="prompt", token_ids=ids, text=both[0].decode(ids))]
        stop = tuple(dict.fromkeys((*self.sampling.stop, *self.environment.stop)))
        sampling, owed, total = replace(self.sampling, stop=stop), -1, 0.0
        for number in range(whole):
            turn = turn_of(number, self.length, self.quiet)
            sampler, role = both[turn.controls], ("policy", self.control_role)[turn.controls]
            [completion] = await sampler.sample(episode.token_ids, 1, sampling)
            own = replace(
                sampled_segment(completion, role, turn=number),
                text=sampler.decode(completion.token_ids),
                state_key=seen.text if seen.state_key is None else seen.state_key,
            )
            outcome = await instance.step(own.text)
            seen = outcome.observation
            reward = 0.0
            if turn.scored:
                words = seen.text.split()
                reward = density.logp(words) / (GREATEST * max(len(words), 1))
                density.add(words)
            episode.take(replace(own, reward=reward), outcome.valid)
            total += reward
            if turn.last and not turn.controls:
                owed = len(episode.segments) - 1
            text = seen.text + self._status(density, number + 1)
            observed = both[0].encode_reply(prompt, own.token_ids, Message(role="user", content=text))
            room = min(sampler.context for sampler in both) - len(episode.token_ids) - len(observed)
            over = outcome.done or number + 1 == whole
            if turn.controls and (turn.last or over or room <= 0):
                episode.credit(owed, -total)
                total = 0.0
                density = Density() if self.buffer == "round" else density
            if over or room <= 0:
                episode.stop_reason = "environment" if over else "length"
                return
            episode.segments.append(Segment(actor="environment", token_ids=observed, turn=number + 1, text=text))

    def _status(self, density: Density, number: int) -> str:
        """The counts, and the rounds and turns that are left."""
        rounds, turns = divmod(self.rounds * self.length - number, self.length)
        return f"; {density.shown()}; {rounds} {turns}\n"


@dataclass(kw_only=True)
class _Episode:
    """An episode in progress."""

    sample: int
    segments: list[Segment] = field(default_factory=list)
    facts: Episode = field(default_factory=Episode)
    stop_reason: StopReason = "environment"
    failure: str = ""

    @property
    def token_ids(self) -> IntArray:
        """All token ids so far."""
        return np.concatenate([segment.token_ids for segment in self.segments])

    def take(self, segment: Segment, valid: bool) -> None:
        """Add a turn."""
        self.segments.append(segment)
        self.facts = replace(
            self.facts,
            valid_turns=(*self.facts.valid_turns, bool(valid)),
            turn_rewards=(*self.facts.turn_rewards, segment.reward),
        )

    def credit(self, place: int, reward: float) -> None:
        """The reward of Explore's round, at its last turn."""
        self.segments[place] = replace(self.segments[place], reward=reward)

    def rollout(self, task: Task, role: str) -> Trajectory | None:
        """The episode as one role learns from it: the other's turns are not trained, and their rewards not its own."""
        if not any(segment.actor == role for segment in self.segments) and (role != "policy" or not self.failure):
            return None
        own = tuple(s if s.actor == role else replace(s, trained=False, reward=0.0) for s in self.segments)
        return Trajectory(
            task=task if role == "policy" else replace(task, key=f"{task.key}/{role}"),
            segments=own,
            stop_reason=self.stop_reason,
            sample=self.sample,
            facts=(self.facts,),
            failure=self.failure,
        )
