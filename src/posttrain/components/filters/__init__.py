"""Which trajectories or groups are kept.

Contract: what is dropped comes back with a reason, for the record; the state is JSON.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.component import Component
from posttrain.types import Group

State = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A group, or some trajectories of one, that will not be learned from."""

    group: Group
    reason: str


class Filter(Component):
    """Splits scored groups into those to learn from and those to leave out."""

    def start(self) -> State:
        """State before the first step."""
        return {}

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Return the new state, the kept groups in order, and what was dropped and why."""
        raise NotImplementedError
