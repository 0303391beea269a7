"""Statistics of a metric's curve: consecutive steps beyond a bound, and moving averages with their noise."""

from collections.abc import Mapping, Sequence
from typing import Any


def persistent(count: int, broken: bool, patience: int) -> tuple[int, bool]:
    """Number of consecutive steps in which a bound is broken, and whether it has reached the patience."""
    count = count + 1 if broken else 0
    return count, count >= patience


def mean(values: Sequence[float]) -> float:
    """Mean of at least one value."""
    return sum(values) / len(values)


class Curve:
    """Exponential moving average of a metric, its first values, and the mean distance between consecutive steps."""

    def __init__(self, state: Mapping[str, Any], window: int) -> None:
        """`window` is the number of steps of the average: its rate is 2 / (window + 1)."""
        self.rate = 2.0 / (window + 1)
        self.first: list[float] = list(state.get("first", []))
        self.count: int = state.get("count", 0)
        self.average: float = state.get("average", 0.0)
        self.last: float = state.get("last", 0.0)
        self.noise: float = state.get("noise", 0.0)
        """Average distance between consecutive steps; a trend hardly adds to it."""

    def add(self, value: float, initial: int) -> None:
        """Add the value of the next step. The first `initial` values are kept."""
        self.count += 1
        rate = max(self.rate, 1.0 / self.count)  # a plain mean until there is a window of them
        distance = abs(value - self.last) if self.count > 1 else 0.0
        self.noise += rate * (distance - self.noise)
        self.last = value
        self.average += rate * (value - self.average)
        if len(self.first) < initial:
            self.first.append(value)

    def state(self) -> dict[str, Any]:
        """State as JSON."""
        return {
            "first": self.first,
            "count": self.count,
            "average": self.average,
            "last": self.last,
            "noise": self.noise,
        }
