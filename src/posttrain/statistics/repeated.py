"""Paired comparison of two methods over the same seeds: difference, interval, detectable effect.

The unit is the seed, since everything within a run depends on the same seed. Both methods of a seed start from the same
draws, so differences are taken within seeds. One criterion decides whether there is a difference: Student's paired t
test, whose p-value is below 1 - level exactly where its interval excludes 0. It assumes normal differences. The
sign-flip test assumes only that their distribution is symmetric, but few seeds cannot reach a small p-value with it:
`smallest_sign_flip_p` is 1/16 for five.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from posttrain.statistics.intervals import Interval, mean, t_cdf
from posttrain.statistics.power import detectable

_DIGITS = 12
"""Significant digits of a measure that a difference is computed from; the rest is rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedDifference:
    """A measure of one method minus that of another, over seeds."""

    value: float
    interval: Interval
    """Student's t, of the requested level; unbounded for a single seed."""
    std: float | None
    """Of the differences; None for one seed, and 0 where all are equal."""
    seeds: int
    higher: int
    """Seeds in which the measure was higher."""
    lower: int
    p_value: float
    """Of Student's paired t test, two-sided. Of the sign-flip test for one seed and for equal differences."""
    sign_flip_p: float
    """Of a sign-flip test of no difference, two-sided."""
    detectable: float
    """Smallest difference that this many seeds find with a power of 0.8, at the observed std; infinite for one."""


def repeated_difference(base: Sequence[float], other: Sequence[float], level: float = 0.95) -> RepeatedDifference:
    """Compare two methods by a measure of their runs, in the same order of seeds."""
    differences = paired_differences(base, other)
    found = mean(differences, level)
    count, equal = len(differences), len(set(differences)) == 1
    value = differences[0] if equal else round(found.value, _places(base, other)) + 0.0
    std = None if count == 1 else 0.0 if equal else found.standard_error * math.sqrt(count)
    sign_flip_p = sign_flip(differences)
    return RepeatedDifference(
        value=value,
        interval=Interval(value, value) if std == 0 else found.interval,
        std=std,
        seeds=count,
        higher=sum(d > 0 for d in differences),
        lower=sum(d < 0 for d in differences),
        p_value=2 * t_cdf(-abs(value) / found.standard_error, count - 1) if std else sign_flip_p,
        sign_flip_p=sign_flip_p,
        detectable=math.inf if std is None else detectable(std, count, level=level),
    )


def paired_differences(base: Sequence[float], other: Sequence[float]) -> list[float]:
    """Each of `other` minus that of `base`, without rounding: 0 for equal numbers, and equal for equal differences."""
    if len(base) != len(other) or not len(base):
        raise ValueError(f"{len(base)} runs and {len(other)} runs; the same seeds, at least one, are needed")
    places = _places(base, other)
    return [round(b - a, places) + 0.0 for a, b in zip(base, other, strict=True)]


def smallest_sign_flip_p(seeds: int) -> float:
    """The smallest p-value of a two-sided sign-flip test: 2 of all 2^seeds choices of signs."""
    return 2.0 ** (1 - seeds)


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


def _places(base: Sequence[float], other: Sequence[float]) -> int:
    """Decimal places down to which differences of these numbers mean something."""
    size = max(map(abs, [*base, *other]))
    return _DIGITS - math.ceil(math.log10(size)) if size > 0 else 0
