"""Controllers: bounds of gradients and the noise of private training, chosen again after each interval of steps.

Contract: the state is JSON. The settings of an interval are a function of the state, and the state after it of what was
measured in it. What a controller measures is released with noise and counted in the ledger; one that `reads` nothing
costs nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.component import Component

State = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Knobs:
    """Settings of the steps of an interval."""

    clips: Sequence[float]
    """Largest norm of a record's gradient, by group of parameters."""
    noise: float
    """Noise multiplier of the gradients of all groups together."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Released numbers of an interval, with noise."""

    within: Sequence[float]
    """By group, the share of records whose gradient was not clipped, about 0 to 1."""
    loss: float
    """Mean loss of a record, in nats per token."""
    spent: float
    """Share of the budget epsilon that is spent."""
    cost: float
    """Share of it that the interval cost."""


class Controller(Component):
    """Chooses the knobs of each interval."""

    every: int = 1
    """Steps of an interval."""

    @property
    def reads(self) -> bool:
        """Whether it reads what is measured."""
        return True

    def start(self, first: Knobs, seed: int) -> State:
        """State before the first interval; `first` are the settings of the recipe."""
        return {}

    def knobs(self, state: State, first: Knobs) -> Knobs:
        """The settings of the next interval."""
        return first

    def observe(self, state: State, measured: Measured) -> State:
        """The state after an interval."""
        return state
