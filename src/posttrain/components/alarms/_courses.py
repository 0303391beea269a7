"""How a number has gone: bounds that hold for several steps in a row, and moving averages with their noise."""

from collections.abc import Mapping, Sequence
from typing import Any


def persistent(count: int, broken: bool, patience: int) -> tuple[int, bool]:
    """The number of steps in a row that a bound is broken, and whether that is as long as it takes."""
    count = count + 1 if broken else 0
    return count, count >= patience


def mean(values: Sequence[float]) -> float:
    """Of at least one value."""
    return sum(values) / len(values)


class Course:
    """An exponential moving average of a metric, its beginning, and how far a step lies from the one before."""

    def __init__(self, state: Mapping[str, Any], window: int) -> None:
        """`window` is the number of steps that an average reaches back over."""
        self.rate = 2.0 / (window + 1)
        self.first: list[float] = list(state.get("first", []))
        self.count: int = state.get("count", 0)
        self.average: float = state.get("average", 0.0)
        self.last: float = state.get("last", 0.0)
        self.noise: float = state.get("noise", 0.0)
        """Average distance from step to step: a trend hardly adds to it."""

    def add(self, value: float, beginning: int) -> None:
        """Take in the next step; the first `beginning` of them are remembered."""
        self.count += 1
        rate = max(self.rate, 1.0 / self.count)  # a plain mean until there is a window of them
        distance = abs(value - self.last) if self.count > 1 else 0.0
        self.noise += rate * (distance - self.noise)
        self.last = value
        self.average += rate * (value - self.average)
        if len(self.first) < beginning:
            self.first.append(value)

    def state(self) -> dict[str, Any]:
        """JSON."""
        return {
            "first": self.first,
            "count": self.count,
            "average": self.average,
            "last": self.last,
            "noise": self.noise,
        }
