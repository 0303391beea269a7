"""Which problems next.

Contract: the state is JSON, `select` is a function of (state, pool, count, seed, step) alone, so that a resumed run
sees the problems that the uninterrupted one would have seen.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.component import Component
from posttrain.types import Group, Task

State = Mapping[str, Any]


class Curriculum(Component):
    """Chooses the problems of a step and learns from what came of them."""

    def start(self) -> State:
        """State before the first step."""
        return {}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int
    ) -> tuple[State, list[Task]]:
        """Choose `count` tasks of the pool for this step."""
        raise NotImplementedError

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Take note of the scored groups of a step, before any filter."""
        return state
