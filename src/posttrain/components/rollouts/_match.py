"""A game of two agents in an environment, turn by turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from posttrain.components.environments import (
    Contained,
    Environment,
    EnvironmentFailed,
    Episode,
    Request,
    Verdict,
    with_opening,
)
from posttrain.components.rollouts._continued import continued, record_of
from posttrain.components.rollouts._exchange import Form, Talk
from posttrain.engines import Sampler
from posttrain.types import IntArray, Message, Segment, Task, Trajectory


class _NoRoom(Exception):
    """No turn is left, or a context has no room for the next one."""


class _Shown(Exception):
    """The turns that were given are over, and only what comes before the next one was wanted."""


@dataclass(kw_only=True)
class Match(Talk):
    """A game in progress. The first agent acts in the environment, which requests what the second one writes."""

    form: Form = field(default_factory=Form)
    environment: Environment
    chance: Sampler
    """What the environment draws by."""
    given: Sequence[Segment] = ()
    """The first turns, if they are not to be sampled."""
    shows: bool = False
    """Whether it stops before the first turn that is not given."""
    episodes: list[Episode] = field(default_factory=list)
    """For each agent, what is known of the game."""
    acting: int = 0
    """Who writes next."""

    @property
    def speaker(self) -> int:
        """Who writes next."""
        return self.acting

    def context(self) -> IntArray:
        """[L] what the next speaker reads."""
        return np.concatenate([segment.token_ids for segment in self.views[self.acting]])

    async def finish(self) -> Self:
        """Play to the end. A failure of the environment ends it."""
        await continued(self.sampler, self._play)
        return self

    async def replay(self, turns: Sequence[Segment]) -> Self:
        """Play given turns, up to what the next speaker reads."""
        self.given, self.shows = turns, True
        return await self.finish()

    async def finish_after(self, turns: Sequence[Segment]) -> Self:
        """Play given turns, and go on to the end."""
        self.given = turns
        return await self.finish()

    async def _play(self, sampler: Sampler) -> None:
        self.sampler, self.turns, self.views = sampler, [], [[], []]
        self.failure, self.stop_reason, self.acting = "", "length", 0
        self.partner = None if self.partner is None else (self.partner[0], self.partner[1].bind())
        self.episodes, self._heard_last = [Episode(), Episode()], ""
        self._prompts: list[str | tuple[Message, ...]] = [self.task.prompt, self.task.prompt]
        try:
            draw = self.chance.bind().uniform
            async with self.environment.open(self.task, draw, record_of(sampler), self._requested) as instance:
                await self._alternate(instance)
                await instance.finish()
                self._end(instance)
        except _Shown:
            return
        except EnvironmentFailed as error:
            self.failure = str(error)
            if error.counted:
                self.episodes = [replace(own, measures={error.counted: 1.0}) for own in self.episodes]

    async def _alternate(self, instance: Contained) -> None:
        """Turns of the first agent, with those of the second that the environment requests."""
        text = instance.begin().text
        try:
            while True:
                turn = await self._written(0, text)
                outcome = await instance.step(turn.text)
                self._count(0, turn, outcome.reward, outcome.valid, outcome.latency)
                if outcome.done:
                    self.stop_reason = "length" if outcome.truncated else "environment"
                    return
                text = outcome.observation.text
        except _NoRoom:
            return

    async def _requested(self, request: Request) -> str:
        """A turn of the second agent, who reads what is new in the request."""
        whole = request.prompt[-1]["content"]
        new = whole.removeprefix(self._heard_last)
        self._heard_last = whole
        turn = await self._written(1, f"\n{new}\n" if isinstance(self.task.prompt, str) else new)
        self._count(1, turn)
        return turn.text

    async def _written(self, place: int, read: str) -> Segment:
        """The next turn of an agent, after what it reads first."""
        self.acting = place
        self._read(place, read)
        number = len(self.turns)
        if number >= self.max_turns:
            raise _NoRoom
        if number == len(self.given) and self.shows:
            raise _Shown
        turn = self.given[number] if number < len(self.given) else await self.next_turn()
        if turn is None:
            raise _NoRoom
        self.views[place].append(turn)
        self.turns.append(turn)
        return turn

    def _read(self, place: int, text: str) -> None:
        view, number = self.views[place], len(self.turns)
        sampler = self._author(place)[1]
        if not view:
            prompt = self._prompts[place] = with_opening(self.task.prompt, text)
            ids = sampler.encode(prompt)
            shown = prompt if isinstance(prompt, str) else sampler.decode(ids)
            view.append(Segment(actor="prompt", token_ids=ids, text=shown, turn=number))
            return
        ids = sampler.encode_reply(self._prompts[place], view[-1].token_ids, Message(role="user", content=text))
        view.append(Segment(actor="environment", token_ids=ids, text=text, turn=number))

    def _count(self, place: int, turn: Segment, reward: float = 0.0, valid: bool = True, latency: float = 0.0) -> None:
        own = self.episodes[place]
        self.episodes[place] = replace(
            own,
            valid_turns=(*own.valid_turns, bool(valid)),
            turn_rewards=(*own.turn_rewards, float(reward)),
            cost=own.cost + len(turn) + latency,
        )

    def _end(self, instance: Contained) -> None:
        """Add the measures, and to each agent the sum of its rewards as the verdict."""
        measures: Mapping[str, float] = instance.measures()
        own = instance.verdict()
        if own is not None:
            own = replace(own, value=own.value + sum(self.episodes[0].turn_rewards))
        verdicts: list[Verdict | None] = [own, instance.verdict(min(self.environment.roles))]
        self.episodes = [
            replace(episode, measures=measures, verdict=verdict)
            for episode, verdict in zip(self.episodes, verdicts, strict=True)
        ]

    def rollouts(self, number: int, longest: float | None = None) -> list[Trajectory]:
        """The game as each agent saw it, if it wrote at all, or as far as it was played where it failed."""
        found = [
            replace(own, facts=(*own.facts, self.episodes[own.sample % 2]), failure=self.failure)
            for own in super().rollouts(number, longest)
        ]
        silent = {0, 1} - {own.sample % 2 for own in found} if self.failure else set[int]()
        for place in sorted(silent):
            found.append(_failed(self.task, self._author(place)[1], 2 * number + place, self.failure))
        return found


def _failed(task: Task, sampler: Sampler, sample: int, failure: str) -> Trajectory:
    """A game that failed before a turn was written."""
    ids = sampler.encode(task.prompt)
    text = task.prompt if isinstance(task.prompt, str) else sampler.decode(ids)
    prompt = Segment(actor="prompt", token_ids=ids, text=text)
    return Trajectory(
        task=task, segments=(prompt,), stop_reason="length", sample=sample, facts=(Episode(),), failure=failure
    )
