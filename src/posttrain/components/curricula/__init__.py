"""Curricula: the choice of the tasks of each step.

Contract: the state is JSON. `select` is a function of (state, pool, count, seed, step, refill) alone, so that a resumed
run has the tasks of the uninterrupted one.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.component import Component
from posttrain.types import Group, Task

State = Mapping[str, Any]


class Curriculum(Component):
    """Chooses the tasks of a step, and updates its state from their scores."""

    def start(self) -> State:
        """State before the first step."""
        return {}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Task]]:
        """Choose `count` tasks of the pool for this step; `refill` numbers further choices in the same step, from 1."""
        raise NotImplementedError

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Return the state after the scored groups of a step, before any filter."""
        return state
