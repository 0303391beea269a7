"""Paired comparison of two methods over the same seeds: difference, interval, detectable effect.

The unit is the seed, since all that happens within a run shares its luck. Both methods of a seed begin from the same
draws, so differences are taken within seeds (Student's paired t). A sign-flip test says how often the same numbers
would look as different if the methods were the same; with five seeds its p-value cannot be below 1/16.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from posttrain.statistics.intervals import Interval, mean, normal_quantile, t_quantile


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedDifference:
    """A measure of one method minus that of another, over seeds."""

    value: float
    interval: Interval
    """95 %, Student's t; unbounded for a single seed."""
    seeds: int
    higher: int
    """Seeds in which it was higher."""
    lower: int
    p_value: float
    """Of a sign-flip test of no difference, two-sided."""
    detectable: float
    """Smallest difference that as many seeds find 4 times in 5, at the spread that was seen; infinite for one."""


def repeated_difference(base: Sequence[float], other: Sequence[float], level: float = 0.95) -> RepeatedDifference:
    """Compare two methods by a measure of their runs, in the same order of seeds."""
    if len(base) != len(other) or not len(base):
        raise ValueError(f"{len(base)} runs and {len(other)} runs; the same seeds, at least one, are needed")
    differences = [b - a for a, b in zip(base, other, strict=True)]
    found = mean(differences, level)
    count = len(differences)
    detectable = math.inf
    if count > 1:
        detectable = (t_quantile(0.5 + level / 2, count - 1) + normal_quantile(0.8)) * found.standard_error
    return RepeatedDifference(
        value=found.value,
        interval=found.interval,
        seeds=count,
        higher=sum(d > 0 for d in differences),
        lower=sum(d < 0 for d in differences),
        p_value=sign_flip(differences),
        detectable=detectable,
    )


def sign_flip(differences: Sequence[float], *, draws: int = 20_000) -> float:
    """Share of all choices of signs under which the mean is at least as far from 0; drawn at random beyond 14 seeds."""
    x_N = np.asarray(differences, np.float64)
    if len(x_N) <= 14:
        sign_MN = np.array(list(product((1.0, -1.0), repeat=len(x_N))))
    else:
        generator = np.random.Generator(np.random.Philox(0))
        drawn = generator.choice((1.0, -1.0), size=(draws, len(x_N)))
        sign_MN = np.concatenate([np.ones((1, len(x_N))), drawn])
    sums_M = np.abs(sign_MN @ x_N)
    return float(np.mean(sums_M >= sums_M[0] * (1 - 1e-12)))
