"""Holm's step-down correction of several tests, with the levels of the intervals that agree with it.

Source: Holm 1979, *A simple sequentially rejective multiple test procedure*, Scandinavian Journal of Statistics
6:65-70.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """One of several tests, corrected."""

    p_value: float
    """Adjusted: below `alpha` exactly where Holm's procedure rejects at a family-wise error of `alpha`."""
    level: float
    """Level of the interval that excludes no difference exactly where the procedure rejects.

    1 - alpha / (number of hypotheses left) at the step that rejects, and at the step where the procedure ends for all
    that it does not reject.
    """


def holm(p_values: Sequence[float], alpha: float = 0.05) -> list[Corrected]:
    """Each test's adjusted p-value and the level of its interval, in the order of `p_values`."""
    count = len(p_values)
    order = sorted(range(count), key=lambda index: p_values[index])
    found: dict[int, Corrected] = {}
    largest, kept = 0.0, 0
    for place, index in enumerate(order):
        largest = max(largest, min(1.0, (count - place) * p_values[index]))
        kept = kept or (count - place if largest >= alpha else 0)
        found[index] = Corrected(p_value=largest, level=1.0 - alpha / (kept or count - place))
    return [found[index] for index in range(count)]
