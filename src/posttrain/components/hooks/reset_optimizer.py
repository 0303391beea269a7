"""Resets a role's optimizer: its moments of earlier gradients are dropped.

Source: Kimi k1.5, arXiv:2501.12599, section 2.3.2: each iteration solves a new problem, defined by the policy at its
start, and so starts with a new optimizer.

The number of updates, and with it the schedule of the learning rate, continues.
"""

from collections.abc import Mapping

from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.hooks import Hook, RoleState, state_of
from posttrain.errors import UserError


@frozen
class ResetOptimizer(Hook):
    """Resets the optimizer of one role."""

    role: str = "policy"
    """The role whose optimizer it is."""
    every: PositiveInt = 1
    """Reset every N steps."""

    @property
    def roles(self) -> frozenset[str]:
        """The role."""
        return frozenset({self.role})

    @property
    def changed(self) -> frozenset[str]:
        """None: weights do not change."""
        return frozenset()

    def __call__(self, step: int, states: Mapping[str, RoleState]) -> None:
        """Reset after every `every`-th step. Raises `UserError` for a role that is not trained."""
        learner = state_of(self.role, states).learner
        if learner is None:
            raise UserError(
                f"the reset_optimizer hook is for the role '{self.role}', which is not trained in this stage and has "
                f"no optimizer; set models.{self.role}.trained=true, or name another role"
            )
        if step % self.every == 0:
            learner.reset_optimizer()
