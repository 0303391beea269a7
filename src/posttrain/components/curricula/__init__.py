"""Curricula: the choice of the tasks of each step.

Contract: the state is JSON that may hold numpy arrays (`posttrain.stages.memory`), and is changed by returning a new
one. `select` is a function of (state, pool, count, seed, step, refill) alone, so that a resumed run has the tasks of
the uninterrupted one. What must be measured for a choice is measured in `look`, which puts it into the state; a choice
without it is uniform. The pool is the same sequence in all steps of a stage, so that the state may number its tasks.
An episode that is several rollouts, since its history was replaced, is one rollout for a curriculum, the last of them.
Tasks that are born in the run are in the state, and are chosen only after a `look`; their field ``lineage`` has what
they were made of.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Protocol

from posttrain.component import Component
from posttrain.engines import Sampler
from posttrain.types import Fact, FloatArray, Group, IntArray, Task

State = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A task that was chosen, and why; both are in the record of its rollouts."""

    task: Task
    weight: float | None = None
    """The number that it was chosen by, in the curriculum's own unit: a predicted success rate, the probability of its
    category; None where there is none."""
    reason: str = ""
    """``uniform``, the category, ...; empty where every task is chosen alike."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What the record has of the choice; nothing where there is nothing to say of it."""
        lineage = self.task.fields.get("lineage")
        if self.weight is None and not self.reason and lineage is None:
            return ()
        return (Picked(weight=self.weight, reason=self.reason or None, lineage=lineage),)


@dataclass(frozen=True, kw_only=True)
class Picked(Fact):
    """Why the task of a rollout was chosen: the fields of its `Pick`, and what a born task was made of."""

    weight: float | None = None
    reason: str | None = None
    lineage: Mapping[str, Any] | None = None
    """Key of the parent, writer, step, and depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a model of the curriculum should predict for a task."""

    task: Task
    value: float


class Probe(Protocol):
    """What `Curriculum.look` may use of the run. What it samples counts as sampled, and as ``probe_tokens``."""

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        """The recipe's models by role; the draws are a function of the seed and the step."""
        ...

    @property
    def held_out(self) -> AbstractSet[str]:
        """The problems of the held-out tasks (`posttrain.datasets.keys.problem`), which no born task may have."""
        ...

    async def collect(self, tasks: Sequence[Task], n: int | None) -> list[Group]:
        """The scored rollouts of each task, in order, by the rollout and the reward of the stage; `n` of each, or as
        many as in training. One group per task, without rollouts whose scoring failed; it may be empty.
        """
        ...

    async def mlp_inputs(self, role: str, token_ids: Sequence[IntArray]) -> list[FloatArray]:
        """For each sequence the [L, D] inputs of the last MLP of a role's model, which must be loaded here."""
        ...

    async def predict(self, role: str, tasks: Sequence[Task]) -> list[float]:
        """The score of each task's prompt by the model in a role, which has the head ``reward``."""
        ...


class Curriculum(Component):
    """Chooses the tasks of a step, and updates its state from their scores."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles besides the policy whose models `look` uses."""
        return frozenset()

    @property
    def taught(self) -> str | None:
        """The role of these, with the head ``reward``, that learns from `targets`; None if there is none."""
        return None

    @property
    def squashes(self) -> bool:
        """Whether the prediction of the role `taught` is the sigmoid of its score."""
        return False

    @property
    def remembers_tasks(self) -> bool:
        """Whether it learns from a task's rollouts about this task only, so that it needs several visits of each."""
        return False

    @property
    def needs_several(self) -> bool:
        """Whether it learns from differences between the rewards of one task's rollouts."""
        return False

    def check(self, tasks: Sequence[Task], count: int) -> None:
        """Raise `UserError`, before anything is sampled, for tasks among which it cannot choose `count`."""

    def notes(self, tasks: Sequence[Task]) -> list[str]:
        """What the user should be aware of with these tasks: notes of a run and of its dry run."""
        return []

    def start(self) -> State:
        """State before the first step."""
        return {}

    async def look(
        self, state: State, pool: Sequence[Task], probe: Probe, count: int, *, seed: int, step: int, refill: int = 0
    ) -> State:
        """Measure what the next choice of `count` tasks needs: called before every `select`, with its arguments."""
        return state

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Choose `count` tasks of the pool for this step; `refill` numbers further choices in the same step, from 1."""
        raise NotImplementedError

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Return the state after the scored groups of a step, before any filter."""
        return state

    def targets(self, state: State, groups: Sequence[Group]) -> list[Target]:
        """What the role `taught` learns from the scored groups of a step."""
        return []

    def report(self, state: State) -> Mapping[str, float]:
        """Metrics of the step, after `observe`; a name with a slash and a category is a cell of the viewer's table."""
        return {}
