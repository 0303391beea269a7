"""Limits of the time of a command, stated in hours or by a price.

No clock decides what a run learns: one that reached its limit is saved between two steps, and `posttrain resume`
continues it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from posttrain.errors import UserError


@dataclass
class TimeLimit:
    """The seconds that a command may take, from when this was made."""

    seconds: float
    reason: str
    """Why the run stops, for its message."""
    clock: Callable[[], float] = time.monotonic
    _began: float = field(init=False)
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        """Start the clock."""
        self._began = self._last = self.clock()

    def reached(self) -> bool:
        """Called after each step: whether another one that takes as long would end after the limit."""
        now = self.clock()
        step, self._last = now - self._last, now
        return now - self._began + step > self.seconds


def time_limit(hours: float | None, cost: float | None, price: float | None) -> TimeLimit | None:
    """The limit of these options: hours, or a cost at a price per hour.

    Raises `UserError` for a cost without a price.
    """
    if (cost is None) != (price is None):
        raise UserError("a cost needs a price, and a price a cost: --most-cost 10 --price 2.5, in the same currency")
    limits = []
    if hours is not None:
        limits.append(TimeLimit(3600 * hours, f"{hours:g} hours are over"))
    if cost is not None and price is not None:
        limits.append(TimeLimit(3600 * cost / price, f"at {price:g} an hour, {cost:g} are spent"))
    return min(limits, key=lambda limit: limit.seconds, default=None)
