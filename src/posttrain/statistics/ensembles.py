"""One number of an ensemble's several: the surest member's, or a mixture of it with the worst.

Source: "Reward-Robust RLHF in LLMs", arXiv:2409.15360, equations 4 and 7, from notes.
"""

from dataclasses import dataclass

from posttrain.statistics.logistic import Array


@dataclass(frozen=True)
class Mixed:
    """A mixture, and what it is made of."""

    value: float
    """alpha * nominal + (1 - alpha) * min."""
    nominal: float
    """That of the surest member, or the mean."""
    worst: int
    """Place of the smallest number, of equals the first."""
    surest: int | None
    """Place of the surest member, of equals the first; None where nobody states a doubt."""


def mixture(mean_K: Array, doubt_K: Array | None, *, alpha: float, surest: bool = True) -> Mixed:
    """The nominal number mixed with the worst. `doubt_K` rises with the members' standard deviations."""
    best = None if doubt_K is None else int(doubt_K.argmin())
    nominal = float(mean_K.mean() if best is None or not surest else mean_K[best])
    worst = int(mean_K.argmin())
    value = alpha * nominal + (1 - alpha) * float(mean_K[worst])
    return Mixed(value=value, nominal=nominal, worst=worst, surest=best)
