"""A role's optimizer begins anew: what it remembers of earlier gradients is dropped.

Source: Kimi k1.5, arXiv:2501.12599, section 2.3.2: each iteration is a problem of its own, posed by the policy that it
begins with, and so begins with a fresh optimizer.

The count of updates, and with it the schedule of the learning rate, goes on.
"""

from collections.abc import Mapping

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.hooks import Seat, Upkeep, seat_of
from posttrain.errors import UserError


@frozen
class Forget(Upkeep):
    """One role's optimizer starts from nothing."""

    role: str = "policy"
    """The role whose optimizer it is."""
    every: PositiveInt = 1
    """Steps between two beginnings."""

    @property
    def roles(self) -> frozenset[str]:
        """The role."""
        return frozenset({self.role})

    @property
    def changed(self) -> frozenset[str]:
        """None: weights stay as they are."""
        return frozenset()

    def __call__(self, step: int, seats: Mapping[str, Seat]) -> None:
        """Forget after each `every`-th step. Raises `UserError` for a role that does not learn."""
        learner = seat_of(self.role, seats).learner
        if learner is None:
            raise UserError(
                f"the forget upkeep is for the role '{self.role}', which does not learn in this stage and has no "
                f"optimizer; set models.{self.role}.trained=true, or name another role"
            )
        if step % self.every == 0:
            learner.forget()
