"""Hooks: changes of a stage's models between its steps, other than learning: copy, swap, average.

Contract: models are changed in place, since samplers and learners hold them. The change is a function of the step and
of the role states, and everything that it changes is saved in the checkpoint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from posttrain.component import Component, nearest
from posttrain.errors import UserError

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.learner import Learner
    from posttrain.types import Group


@dataclass(kw_only=True)
class RoleState:
    """What belongs to a role in a stage: its model, its learner, and the state of its components."""

    role: str
    model: "Policy"
    learner: "Learner | None" = None
    """None for a role that is not trained in this stage."""
    state: dict[str, Any] = field(default_factory=dict)
    """State of the role's advantage and penalties; JSON, changed in place."""
    initial: Mapping[str, Any] = field(default_factory=dict)
    """That state before the first step."""
    groups: "Sequence[Group]" = ()
    """The rollouts that the step learned from."""


class Hook(Component):
    """A change of the models after a step."""

    RENAMED_KINDS: ClassVar = {"average": "ema", "forget": "reset_optimizer"}

    @property
    def roles(self) -> frozenset[str]:
        """Roles whose models it reads or changes."""
        raise NotImplementedError

    @property
    def changed(self) -> frozenset[str]:
        """Those of them whose weights it changes; each must be trained, or a copy of another role."""
        return self.roles

    def __call__(self, step: int, states: Mapping[str, RoleState]) -> None:
        """Do what is due after step number `step`, counted from 1; `states` are those of all roles of the stage."""
        raise NotImplementedError


def state_of(role: str, states: Mapping[str, RoleState]) -> RoleState:
    """The state of a role. Raises `UserError` for a role that the stage does not have."""
    if role not in states:
        raise UserError(f"a hook names the role '{role}', which this stage does not have; {nearest(role, states)}")
    return states[role]
