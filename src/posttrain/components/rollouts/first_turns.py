"""More rollouts in an environment than are learned from: the group is the first of them that end, by simulated cost.

Source: LOOP, arXiv:2502.01600, which stops a step when 90 % of its rollouts have ended: ``n: 9`` with ``over: 1`` does
so for a group.

The cost of a rollout is the tokens that the model wrote in its turns, and the latencies that the environment states
(`Outcome.latency`), in the time of a token. No clock is read, so that which rollouts are first repeats. All rollouts
of a group wait for one another after each turn; one that cannot be among the first any more is not sampled to its end.
A rollout that failed takes the place of no other.

The group is biased: long rollouts are in it less often than they are sampled.

Differs: the release drops what still runs by the clock, over a whole step.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Environment, Episode
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._budget import Budget
from posttrain.components.rollouts._race import Race
from posttrain.components.rollouts._segments import sampler_of
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task, Trajectory


@frozen
class FirstTurns(Rollout):
    """Samples `n` + `over` rollouts, and keeps the `n` that end first."""

    environment: Environment
    """The environment, of which each rollout has a new instance."""
    n: PositiveInt = 8
    """Rollouts per task that are learned from."""
    over: Annotated[int, Field(ge=0, le=65536)] = 1
    """Rollouts that are begun beside these."""
    max_turns: PositiveInt = 8
    """Most turns of the model in a rollout."""
    sampling: Sampling = Sampling()
    """How each turn is sampled; `max_tokens` limits one turn."""
    allowed: str = "any"
    """What a turn may be, as in the rollout ``turns``."""
    budget: Budget = Budget()
    """As in ``turns``."""
    role: str = "policy"
    """The model that acts and is trained."""
    RENAMED: ClassVar = {"free_turns": "budget.free_turns"}

    @property
    def group_size(self) -> int:
        """The setting `n`."""
        return self.n

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """The tasks must be tasks of the environment."""
        self.environment.check_alone(tasks)
        self._turns.check(tasks)

    def held_out(self, n: int, sampling: Sampling) -> Turns:
        """All rollouts, to their end."""
        return replace(self._turns, n=n, sampling=sampling)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` trajectories, in the order in which they were begun, numbered from 0."""
        sampler, turns, count = sampler_of(self.role, samplers), self._turns, self.n + self.over
        race = Race(running=count, wanted=self.n)
        rollouts = [turns.rollout(task, sampler.bind("attempt", i), i, race=race) for i in range(count)]
        begun = await asyncio.gather(*rollouts)
        first = sorted(begun, key=lambda t: (bool(t.failure), _cost(t), t.sample))[: self.n]
        ordered = sorted(first, key=lambda t: t.sample)
        return [Group(key=task.key, trajectories=tuple(replace(t, sample=i) for i, t in enumerate(ordered)))]

    @property
    def _turns(self) -> Turns:
        return Turns(
            environment=self.environment,
            n=self.n,
            max_turns=self.max_turns,
            sampling=self.sampling,
            allowed=self.allowed,
            budget=self.budget,
            role=self.role,
        )


def _cost(trajectory: Trajectory) -> float:
    """Its simulated cost."""
    episode = trajectory.fact(Episode)
    return 0.0 if episode is None else episode.cost
