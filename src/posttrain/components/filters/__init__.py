"""Selection of the groups and trajectories that are learned from.

Contract: what is dropped is returned with a reason, for the record. The state is JSON.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from posttrain.component import Component
from posttrain.types import Group

State = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Dropped:
    """A group, or some trajectories of one, that are not learned from."""

    group: Group
    reason: str


class Filter(Component):
    """Splits scored groups into those to learn from and those to drop."""

    RENAMED_KINDS: ClassVar = {"deviation": "std", "moving_deviation": "moving_std"}

    @property
    def needs_several(self) -> bool:
        """Whether a group of one rollout is always dropped."""
        return False

    def start(self) -> State:
        """State before the first step."""
        return {}

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Return the new state, the kept groups in order, and what was dropped and why."""
        raise NotImplementedError
