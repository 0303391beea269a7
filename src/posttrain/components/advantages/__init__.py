"""Rewards to credit per token.

Contract: finite on constant rewards and on groups of one; equivariant under a permutation of the trajectories; the
state is JSON and survives saving exactly. Arithmetic is in float64, results in float32.
"""

from collections.abc import Mapping
from typing import Any

from posttrain.component import Component
from posttrain.types import Batch, Credit

State = Mapping[str, Any]


class Advantage(Component):
    """Turns the token rewards of a batch into one advantage per trained token."""

    @property
    def needs(self) -> frozenset[str]:
        """Signals that must be in the batch: ``value`` (a critic's), ``<role>_logp`` or ``<role>_entropy``.

        The role ``old`` is the policy before the updates of the step.
        """
        return frozenset()

    def start(self) -> State:
        """State before the first step."""
        return {}

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Return the new state and the credit of every trained token."""
        raise NotImplementedError
