r"""Turns in an environment, each chosen among several of the policy's by the values of a critic.

In each turn `candidates` are sampled from the policy; equal ones are one. One is drawn with a probability proportional
to the number of its samples times exp(beta Q(s, u)), which is the policy's distribution times exp(beta (Q - V)): V is
the same for all turns of a state. Q is the smaller of the first two outputs of the critic, a model with several, at the
end of the turn. With beta 0 it is the policy. At temperature 0 the candidate with the highest log-probability plus
beta Q is taken, of samples at temperature 1.

Source: ILQL, arXiv:2206.11871, equation 6, whose policy is pi_beta exp(beta (Q - V)), for whole turns in place of
tokens; as hindsight regenerations, arXiv:2411.05194, is thought to do.

Differs: the values are the critic's own, and not those of its slow copy.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Contained, Environment, EnvironmentFailed, Episode, with_opening
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._continued import continued, record_of
from posttrain.components.rollouts._segments import sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.signals import SCORES, Signal
from posttrain.types import Completion, Group, Message, Segment, StopReason, Task, Trajectory


@frozen
class ByValues(Rollout):
    """Samples `n` rollouts whose turns are chosen by values."""

    environment: Environment
    """The environment, of which each rollout has a new instance."""
    n: PositiveInt = 8
    """Rollouts per task."""
    max_turns: PositiveInt = 8
    """Most turns."""
    candidates: Annotated[int, Field(ge=1, le=256)] = 8
    """Turns that are sampled for each one that is taken."""
    beta: NonNegativeFloat = 4.0
    """Weight of the values."""
    sampling: Sampling = Sampling()
    """How each turn is sampled. The stop strings of the environment are added."""
    critic_role: str = "critic"
    """The model with values of turns as its first two outputs."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def roles(self) -> frozenset[str]:
        """The critic, where the values count."""
        return frozenset({self.critic_role} if self.beta else ())

    @property
    def helpers(self) -> frozenset[str]:
        """The critic, where the values count."""
        return frozenset({self.critic_role} if self.beta else ())

    @property
    def needs(self) -> frozenset[Signal]:
        """The critic's outputs."""
        return frozenset({Signal(SCORES.name, of=self.critic_role)} if self.beta else ())

    def check(self, tasks: Sequence[Task]) -> None:
        """The tasks must be tasks of the environment."""
        self.environment.check_alone(tasks)

    def held_out(self, n: int, sampling: Sampling) -> "ByValues":
        """The same, with as many rollouts."""
        return replace(self, n=n, sampling=sampling)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` rollouts."""
        sampler, critic = sampler_of("policy", samplers), samplers.get(self.critic_role)
        found = await asyncio.gather(*(self._play(task, sampler.bind("values", i), critic, i) for i in range(self.n)))
        return [Group(key=task.key, trajectories=tuple(found))]

    async def _play(self, task: Task, sampler: Sampler, critic: Sampler | None, sample: int) -> Trajectory:
        """One rollout; a failure of the environment ends it."""
        return await continued(sampler, lambda sampler: self._episode(task, sampler, critic, sample))

    async def _episode(self, task: Task, sampler: Sampler, critic: Sampler | None, sample: int) -> Trajectory:
        segments, episode, failure, reason = list[Segment](), Episode(), "", "length"
        try:
            async with self.environment.open(task, sampler.uniform, record_of(sampler)) as instance:
                episode, reason = await self._turns(instance, task, sampler, critic, segments)
                await instance.finish()
                episode = replace(episode, measures=instance.measures(), verdict=instance.verdict())
        except EnvironmentFailed as error:
            failure = str(error)
            if not segments:
                segments = [Segment(actor="prompt", token_ids=sampler.encode(task.prompt))]
        return Trajectory(
            task=task,
            segments=tuple(segments),
            stop_reason=_reason(reason),
            sample=sample,
            facts=(episode,),
            failure=failure,
        )

    async def _turns(
        self, instance: Contained, task: Task, sampler: Sampler, critic: Sampler | None, segments: list[Segment]
    ) -> tuple[Episode, str]:
        """Alternate turns and observations until the end."""
        prompt = with_opening(task.prompt, instance.begin().text)
        ids, episode = sampler.encode(prompt), Episode()
        segments.append(Segment(actor="prompt", token_ids=ids, text=prompt if isinstance(prompt, str) else ""))
        own, more = self.sampling.stop, self.environment.stop
        sampling = replace(self.sampling, stop=(*own, *(s for s in more if s not in own)))
        for turn in range(self.max_turns):
            ids = np.concatenate([s.token_ids for s in segments])
            completion = await self._turn(ids, sampler, critic, sampling)
            written = sampled_segment(completion, "policy", turn=turn)
            written = replace(written, text=sampler.decode(written.token_ids))
            outcome = await instance.step(written.text)
            segments.append(replace(written, reward=float(outcome.reward)))
            episode = replace(
                episode,
                valid_turns=(*episode.valid_turns, bool(outcome.valid)),
                turn_rewards=(*episode.turn_rewards, float(outcome.reward)),
            )
            if outcome.done:
                return episode, "environment"
            seen = Message(role="user", content=outcome.observation.text)
            observed = sampler.encode_reply(prompt, written.token_ids, seen)
            size = sum(map(len, segments)) + len(observed)
            if turn + 1 == self.max_turns or size >= sampler.context:
                break
            text = outcome.observation.text
            segments.append(Segment(actor="environment", token_ids=observed, turn=turn + 1, text=text))
        return episode, "length"

    async def _turn(self, ids: np.ndarray, sampler: Sampler, critic: Sampler | None, sampling: Sampling) -> Completion:
        """A turn of the policy, chosen among several."""
        if not self.beta or critic is None:
            [own] = await sampler.sample(ids, 1, sampling)
            return own
        greedy = sampling.temperature == 0.0
        drawn = await sampler.sample(ids, self.candidates, replace(sampling, temperature=1.0) if greedy else sampling)
        different = {own.token_ids.tobytes(): own for own in drawn}
        options = list(different.values())
        q = [float(min((await critic.scores(np.concatenate([ids, own.token_ids])))[:2])) for own in options]
        if greedy:
            value = [float(own.logp.sum()) + self.beta * each for own, each in zip(options, q, strict=True)]
            return options[int(np.argmax(value))]
        count = [sum(own.token_ids.tobytes() == key for own in drawn) for key in different]
        weight = np.array(count) * np.exp(self.beta * (np.array(q) - max(q)))
        place = int(np.searchsorted(np.cumsum(weight), sampler.uniform() * weight.sum(), side="right"))
        return options[min(place, len(options) - 1)]


def _reason(text: str) -> StopReason:
    return "environment" if text == "environment" else "length"
