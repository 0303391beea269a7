"""Two agents play a game of an environment against each other, each with what the game shows it.

The first agent acts, and the environment requests what the second one writes: a game of TextArena, OpenSpiel or
PettingZoo, or `bargain`. Each reads the task's prompt and what the game shows to its own player. A game gives two
rollouts, one as each agent saw it, with the sum of its own rewards as the verdict of its `Episode`. Both learn, from
their own turns. With a `partner` the second agent is another model, and a game gives the rollout of the first; with
`swapped` the two change places in every second game. Where only one of the two wrote there is only its rollout.

The game ends when the environment is done, after `max_turns`, or when a context has no room; the last two have the stop
reason ``length``, and the environment's result as it is then.

Source: players of one language model against each other as in SPIRAL, arXiv:2506.24119, section 3; the rollouts are
those of conversations in Optima, arXiv:2410.08115.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Final, Literal

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Environment
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._exchange import exchanged, partner_of
from posttrain.components.rollouts._match import Match
from posttrain.components.rollouts._segments import sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.errors import UserError
from posttrain.types import Group, Task

SECOND: Final = "other"
"""Role of the second player in the environment, where it has no model of its own."""


@frozen
class Game(Rollout):
    """Samples `n` games."""

    environment: Environment
    """A game of two players, of which each rollout has a new instance."""
    n: PositiveInt = 8
    """Games per task."""
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 16
    """Most turns, of both together."""
    rollouts: Literal["both", "first"] = "both"
    """Whether a game gives a rollout of each agent, or that of the first alone, as held-out ones do."""
    sampling: Sampling = Sampling()
    """How each turn is sampled. The stop strings of the environment are added."""
    role: str = "policy"
    """The model of both agents, or of the first where the second has its own."""
    partner: str | None = None
    """The role of the second agent, whose turns are not learned from; None is the model of the first."""
    swapped: bool = False
    """Whether the partner is the first agent in every second game of a task."""

    @property
    def group_size(self) -> int | None:
        """None, as an agent that does not write gives no rollout."""
        return None

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def roles(self) -> frozenset[str]:
        """The second agent's, if it has its own."""
        return frozenset() if self.partner is None else frozenset({self.partner})

    @property
    def helpers(self) -> frozenset[str]:
        """The same."""
        return self.roles

    @cached_property
    def played(self) -> Environment:
        """The environment, in which the second agent writes. Raises `UserError` where it has no second player."""
        return self.environment.with_other(self.partner or SECOND)

    def check(self, tasks: Sequence[Task]) -> None:
        """The environment must be a game of two, which is played again where a run goes on."""
        self.played.check(tasks)
        if self.played.resumes != "replay":
            raise UserError(
                f"a game of two agents in '{self.environment.kind}' is played again where a run goes on, and its "
                "answers would come from a record; leave goes_on out"
            )

    def held_out(self, n: int, sampling: Sampling) -> "Game":
        """The same game, seen by the first agent, or by the one that learns."""
        return replace(self, n=n, rollouts="first", sampling=sampling)

    def begun(self, task: Task, samplers: Mapping[str, Sampler], key: tuple[int | str, ...], number: int) -> Match:
        """A game that has not begun. Those of a tree share what the environment draws."""
        sampler = sampler_of(self.role, samplers)
        partner, place = partner_of(self.partner, samplers, key, first=self.swapped and number % 2 == 1)
        stop, own = self.sampling.stop, self.played.stop
        return Match(
            task=task,
            sampler=sampler.bind(*key),
            chance=sampler.bind("chance", *(key if key[0] == "exchange" else ())),
            sampling=replace(self.sampling, stop=(*stop, *(text for text in own if text not in stop))),
            max_turns=self.max_turns,
            role=self.role,
            partner=partner,
            partner_place=place,
            environment=self.played,
        )

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group with the rollouts of all games."""
        begun = [self.begun(task, samplers, ("exchange", i), i) for i in range(self.n)]
        return await exchanged(task, begun, both=self.rollouts == "both")
