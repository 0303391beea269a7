"""Rollouts of several turns, in which the model and an environment alternate.

The prompt and the first observation are tokenized once; after that, ids are only appended. Sampled ids are kept, and
each observation is tokenized by itself: as text after a text prompt, by the chat template (with what it puts between
two turns of the assistant) after messages. Observations are not trained.

Rollouts and tasks run concurrently. Each rollout has an environment instance and a sampler of its own, so that its
draws do not depend on the progress of others. A rollout ends when the environment is done, after `max_turns`, or when
the context has no room for the next turn; the last two, and an end by the environment's own limit of time, have stop
reason ``length``. A rollout whose environment failed
ends with a `Trajectory.failure`, and its score is an error.

Each trajectory has an `Episode` with its statistics.

Source: the interaction loop of ReAct, Yao et al. 2022, arXiv:2210.03629; groups of episodes from one initial state as
in GiGPO, Feng et al. 2025, arXiv:2505.10978, section 4.1.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np
from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import (
    Contained,
    Environment,
    EnvironmentFailed,
    Episode,
    EpisodeChanged,
    Observation,
    Outcome,
    with_opening,
)
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._allowed import Allowed, masked_sampler, schema_of
from posttrain.components.rollouts._budget import Budget
from posttrain.components.rollouts._continued import continued, record_of
from posttrain.components.rollouts._race import Race
from posttrain.components.rollouts._requested import Writers
from posttrain.components.rollouts._segments import sampled_segment, sampler_of
from posttrain.engines import Idling, Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import Group, IntArray, Message, Segment, StopReason, Task, Trajectory


@frozen
class Turns(Rollout):
    """Samples `n` rollouts of up to `max_turns` turns."""

    environment: Environment
    """The environment, of which each rollout has a new instance."""
    n: PositiveInt = 8
    """Rollouts per task."""
    max_turns: PositiveInt = 8
    """Most turns of the model in a rollout."""
    sampling: Sampling = Sampling()
    """How each turn is sampled; `max_tokens` limits one turn. The stop strings of the environment are added."""
    speaker: str = "user"
    """Message role of observations in chats: ``user``, or ``tool`` where the template has it."""
    role: str = "policy"
    """The model that acts and is trained."""
    allowed: str = "any"
    """What a turn may be: ``any`` text; one of the ``legal`` actions that the environment lists; or, for
    ``schema:NAME``, a value of the JSON schema in that column of the task, an object or text. Tokens are then drawn
    among those that go on with one, and log-probabilities are those among them. A turn that is cut before it is a legal
    action never reaches the environment, and ends the rollout."""
    budget: Budget = Budget()
    """Tokens of all turns, invalid turns that are free, and whether what is left is shown."""
    RENAMED: ClassVar = {"free_turns": "budget.free_turns"}

    @property
    def group_size(self) -> int:
        """The setting `n`."""
        return self.n

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def _column(self) -> str | None:
        """The column of schemas, if turns follow one."""
        kind, _, column = self.allowed.partition(":")
        return column if kind == "schema" and column else None

    @property
    def roles(self) -> frozenset[str]:
        """Those that write for the environment."""
        return self.environment.roles - {self.role}

    @property
    def helpers(self) -> frozenset[str]:
        """The same."""
        return self.roles

    def check(self, tasks: Sequence[Task]) -> None:
        """The tasks must be tasks of the environment, with schemas where turns follow one."""
        self.environment.check(tasks)
        self.budget.check()
        if self.allowed not in ("any", "legal") and self._column is None:
            raise UserError(
                f"rollout.allowed is '{self.allowed}'; it is any, legal, or schema:NAME with a column's name"
            )
        for task in tasks if self._column is not None else ():
            schema_of(task, self._column or "")

    def held_out(self, n: int, sampling: Sampling) -> "Turns":
        """The same environment and number of turns."""
        return replace(self, n=n, sampling=sampling)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` rollouts."""
        sampler = sampler_of(self.role, samplers)
        if self.max_turns > 1 and not isinstance(task.prompt, str):  # a template may be refused, before anything else
            sampler.encode_reply(task.prompt, np.zeros(0, np.int64), Message(role=self.speaker, content=""))
        # The name is a part of the key of random draws: another one would change them.
        others = {role: sampler_of(role, samplers) for role in self.environment.roles}
        rollouts = [
            self.rollout(
                task,
                sampler.bind("attempt", i),
                i,
                others={role: other.bind("attempt", i, "requested") for role, other in others.items()},
            )
            for i in range(self.n)
        ]
        return [Group(key=task.key, trajectories=tuple(await asyncio.gather(*rollouts)))]

    async def rollout(
        self,
        task: Task,
        sampler: Sampler,
        sample: int,
        given: Sequence[str] = (),
        race: Race | None = None,
        others: Mapping[str, Sampler] = MappingProxyType({}),
    ) -> Trajectory:
        """One rollout, whose first turns may be given (as actor ``demonstration``, trained).

        A failure of the environment ends it. `others` write where the environment requests it, by role.
        """
        return await continued(sampler, lambda sampler: self._rollout(task, sampler, sample, given, race, others))

    async def _rollout(
        self,
        task: Task,
        sampler: Sampler,
        sample: int,
        given: Sequence[str],
        race: Race | None,
        others: Mapping[str, Sampler],
    ) -> Trajectory:
        writers = Writers(samplers={role: other.bind() for role, other in others.items()})
        left = self.budget.limit(lambda: sampler.bind("budget").uniform())
        progress = _Progress(prompt=task.prompt, left=left, writers=writers)
        failure = ""
        try:
            async with self.environment.open(task, sampler.uniform, record_of(sampler), writers.write) as instance:
                await self._play(task, instance, progress, sampler, given, race)
                await instance.finish()
                progress.end(instance)
        except EnvironmentFailed as error:
            failure = str(error)
            if error.counted:
                progress.episode = replace(progress.episode, measures={error.counted: 1.0})
            progress.segments = progress.segments or [_prompt(progress.prompt, sampler)]
        except EpisodeChanged:
            progress.starts_anew = True
            raise
        finally:
            if race is not None and not progress.starts_anew:
                race.leave(None if failure or progress.dropped else progress.episode.cost)
        return Trajectory(
            task=task,
            segments=tuple(progress.segments),
            stop_reason=progress.stop_reason,
            sample=sample,
            facts=(progress.episode, *writers.facts),
            failure=failure,
        )

    async def _play(
        self,
        task: Task,
        instance: Contained,
        progress: "_Progress",
        sampler: Sampler,
        given: Sequence[str] = (),
        race: Race | None = None,
    ) -> None:
        """Alternate turns of the model, the first of which may be given, and the environment until the end."""
        observation = instance.begin()
        first = self.budget.added_to(observation, self.max_turns, progress.left)
        progress.prompt = with_opening(progress.prompt, first.text)
        progress.segments = [_prompt(progress.prompt, sampler)]
        stop = self.sampling.stop
        sampling = replace(self.sampling, stop=(*stop, *(s for s in self.environment.stop if s not in stop)))
        for turn in range(self.max_turns + self.budget.free_turns):
            if turn < len(given):
                own, cut = self._given(progress.prompt, given[turn], turn, sampler), False
            else:
                most = sampling.max_tokens if progress.left is None else min(sampling.max_tokens, progress.left)
                within = replace(sampling, max_tokens=most)
                own, cut = await self._drawn(task, observation, progress, sampler, within, turn)
            key = observation.text if observation.state_key is None else observation.state_key
            if cut and self.allowed == "legal" and own.text not in (observation.legal or ()):
                progress.take(replace(own, state_key=key), Outcome(valid=False))
                return
            outcome = await instance.step(own.text)
            progress.take(replace(own, state_key=key, reward=float(outcome.reward)), outcome)
            if outcome.done:
                progress.stop_reason = "length" if cut or outcome.truncated else "environment"
                return
            observation = outcome.observation
            counted = self.budget.counted(turn + 1, progress.episode.invalid_turns)
            if counted == self.max_turns or progress.left == 0:
                return
            with_left = self.budget.added_to(observation, self.max_turns - counted, progress.left)
            observed = self._observed(progress.prompt, own.token_ids, with_left, turn + 1, sampler)
            if len(progress.token_ids) + len(observed) >= sampler.context:
                return
            progress.segments.append(observed)
            if outcome.latency and isinstance(sampler, Idling):
                await sampler.idle(outcome.latency)
            if race is not None and not await race.goes_on(progress.episode.cost):
                progress.dropped = True
                return

    async def _drawn(
        self,
        task: Task,
        observation: Observation,
        progress: "_Progress",
        sampler: Sampler,
        sampling: Sampling,
        turn: int,
    ) -> tuple[Segment, bool]:
        """A turn of the model, and whether it was cut. Raises `UserError` where nothing is listed as legal."""
        allowed = self._allowed(task, observation, sampler)
        if allowed is None:
            (completion,) = await sampler.sample(progress.token_ids, 1, sampling)
        else:
            masked = masked_sampler(self.role, sampler)
            (completion,) = await masked.watched(progress.token_ids, 1, sampling, allowed.watch)
        own = sampled_segment(completion, self.role, turn=turn)
        own = replace(own, text=sampler.decode(own.token_ids))
        if allowed is not None:
            own = replace(allowed.noted(own), text=allowed.vocabulary.text(own.token_ids))
        return own, completion.stop_reason == "length"

    def _allowed(self, task: Task, observation: Observation, sampler: Sampler) -> Allowed | None:
        """What the next turn may be; None for anything."""
        if self._column is not None:
            return Allowed.of_schema(schema_of(task, self._column), masked_sampler(self.role, sampler))
        if self.allowed == "any":
            return None
        if observation.legal is None:
            raise UserError(
                f"rollout.allowed=legal, but the environment '{self.environment.kind}' lists no legal actions for "
                f"task {task.key}; take rollout.allowed=any"
            )
        if not observation.legal:
            raise EnvironmentFailed("the environment goes on, and lists no legal action")
        return Allowed.of_texts(observation.legal, masked_sampler(self.role, sampler))

    def _given(self, prompt: str | tuple[Message, ...], text: str, turn: int, sampler: Sampler) -> Segment:
        """A turn that is given, with the end token where no stop string ends it; it was not sampled."""
        token_ids = sampler.encode_completion(prompt, text)
        if self.environment.stop and text.endswith(self.environment.stop):
            token_ids = token_ids[:-1]
        return Segment(actor="demonstration", token_ids=token_ids, trained=True, turn=turn, text=text)

    def _observed(
        self,
        prompt: str | tuple[Message, ...],
        turn_ids: IntArray,
        observation: Observation,
        turn: int,
        sampler: Sampler,
    ) -> Segment:
        """An observation, in ids that continue the model's turn."""
        reply = Message(role=self.speaker, content=observation.text)
        token_ids = sampler.encode_reply(prompt, turn_ids, reply)
        return Segment(actor="environment", token_ids=token_ids, turn=turn, text=observation.text)


@dataclass(kw_only=True)
class _Progress:
    """A rollout in progress."""

    prompt: str | tuple[Message, ...]
    segments: list[Segment] = field(default_factory=list)
    stop_reason: StopReason = "length"
    episode: Episode = field(default_factory=Episode)
    dropped: bool = False
    """Whether enough others had ended."""
    starts_anew: bool = False
    """Whether its environment did not repeat what it had answered."""
    left: int | None = None
    """Tokens that are left of a limit in all."""
    writers: Writers
    """The other roles."""

    @property
    def token_ids(self) -> IntArray:
        """All token ids so far."""
        return np.concatenate([segment.token_ids for segment in self.segments])

    def take(self, segment: Segment, outcome: Outcome) -> None:
        """Add a turn of the model and its outcome."""
        self.writers.turn += 1
        self.segments.append(segment)
        if self.left is not None:
            self.left = max(self.left - len(segment), 0)
            self.episode = replace(self.episode, tokens_left=(*(self.episode.tokens_left or ()), self.left))
        if outcome.left is not None:
            self.episode = replace(self.episode, limits_left=(*(self.episode.limits_left or ()), dict(outcome.left)))
        self.episode = replace(
            self.episode,
            valid_turns=(*self.episode.valid_turns, bool(outcome.valid)),
            turn_rewards=(*self.episode.turn_rewards, segment.reward),
            cost=self.episode.cost + len(segment) + outcome.latency,
        )

    def end(self, instance: Contained) -> None:
        """Add the measures and the verdict of the environment."""
        self.episode = replace(self.episode, measures=instance.measures())
        self.episode = replace(self.episode, verdict=instance.verdict())


def _prompt(prompt: str | tuple[Message, ...], sampler: Sampler) -> Segment:
    """The prompt with the first observation, in the ids of the model."""
    token_ids = sampler.encode(prompt)
    return Segment(
        actor="prompt", token_ids=token_ids, text=prompt if isinstance(prompt, str) else sampler.decode(token_ids)
    )
