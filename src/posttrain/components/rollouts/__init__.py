"""How to sample.

Contract: every sampled token keeps its log-probability and the version of the weights that wrote it; token ids are
never made from text again once sampled; with the same samplers the same trajectories come back. What other components
should know of a trajectory beyond its tokens is a `Fact` that this contract, or that of the environments, declares.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from posttrain.component import Component
from posttrain.engines import Sampler, Sampling
from posttrain.signals import Signal
from posttrain.types import Fact, Group, Task

Judge = Callable[[Group], Awaitable[Group]]
"""Gives the group back with a score on every trajectory."""


@dataclass(frozen=True, kw_only=True)
class Prefix(Fact):
    """How much of a rollout was given as a prefix."""

    prefix_tokens: int
    prefix_share: float | None = None
    """Share of the demonstration that was asked for, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class DataRating(Fact):
    """The rating that a recorded completion came with."""

    rating: float


@dataclass(frozen=True, kw_only=True)
class Verification(Fact):
    """What a verifier said of the steps of a solution."""

    verdicts: tuple[float, ...]
    """[K] mean verdict on each step, in [-1, 1]; empty without a well-formed verification."""
    step_ends: tuple[int, ...]
    """[K] number of trained tokens up to the end of each step."""


class Rollout(Component):
    """A sampling strategy, written as straight-line asynchronous code; the engine batches whatever is waiting."""

    @property
    def temperature(self) -> float:
        """Of the distribution that trained tokens are drawn from; the learner's log-probabilities use it too."""
        return 1.0

    @property
    def roles(self) -> frozenset[str]:
        """Roles beside the policy whose models it asks; the recipe must have them."""
        return frozenset()

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals that it asks samplers for: log-probabilities or scores of the models in other roles."""
        return frozenset()

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError`, before anything is sampled, for tasks that lack what the rollout is for."""

    def held_out(self, n: int, sampling: Sampling) -> "Rollout | None":
        """How a held-out task is attempted `n` times: in the same world, without any help that training has.

        None asks the model for `n` answers to the prompt, which is what it means for every rollout of a single turn.
        """
        return None

    def at(self, progress: float) -> "Rollout":
        """With settings as they are at this point of the stage, in [0, 1]; most rollouts stay as they are."""
        return self

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """Attempt a task with the models of the recipe, by role, and return groups of comparable trajectories.

        Each call receives samplers that are bound to (seed, step, task): the n-th completion asked of one of them is
        the same whatever else is being sampled at the time.
        """
        raise NotImplementedError

    async def collect_judged(self, task: Task, samplers: Mapping[str, Sampler], judge: Judge) -> list[Group]:
        """Attempt a task and have every attempt judged, once. This is what a stage calls.

        A rollout whose sampling depends on the scores so far overrides this in place of `collect`.
        """
        return [await judge(group) for group in await self.collect(task, samplers)]
