"""What is done to the models of a stage between its steps, beside learning: exchanged, copied, averaged.

Contract: models are changed in place, since samplers and learners hold them; the change is a function of the step and
of what the seats hold, and it leaves nothing behind that a checkpoint does not save.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from posttrain.component import Component, nearest
from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.learner import Learner


@dataclass(kw_only=True)
class Seat:
    """A role with all that belongs to the model which plays it at the moment."""

    role: str
    model: "Policy"
    learner: "Learner | None" = None
    """None for a role that does not learn in this stage."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What the role's advantage and penalties remember; JSON."""
    fresh: Mapping[str, Any] = field(default_factory=dict)
    """The memory before the first step."""


class Upkeep(Component):
    """A change of the models after a step."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles whose models it reads or changes."""
        raise NotImplementedError

    @property
    def changed(self) -> frozenset[str]:
        """Those of them whose weights it changes; each must be trained, or a copy of another role."""
        return self.roles

    def __call__(self, step: int, seats: Mapping[str, Seat]) -> None:
        """Do what is due after step number `step`, counted from 1."""
        raise NotImplementedError


def seat_of(role: str, seats: Mapping[str, Seat]) -> Seat:
    """The seat of a role. Raises `UserError` for a role that no model plays in this stage."""
    if role not in seats:
        raise UserError(f"upkeep names the role '{role}', but no model plays it here; {nearest(role, seats)}")
    return seats[role]
