"""Paired comparison of two models on the same tasks: difference, interval, detectable effect.

The interval excludes 0 exactly where McNemar's exact test rejects, so that a report cannot claim a difference with one
and doubt it with the other.

Sources: McNemar 1947 (exact binomial form); Newcombe 1998, *Improved confidence intervals for the difference between
binomial proportions based on paired data*, Statistics in Medicine 17:2635-2650, method 10; Clopper
and Pearson 1934 (the interval that inverts the exact test).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from posttrain.statistics.intervals import Interval, clopper_pearson, normal_quantile, wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """Share of correct answers after minus before, over the same tasks."""

    value: float
    interval: Interval
    gained: int
    """Tasks correct after and incorrect before."""
    lost: int
    """Tasks correct before and incorrect after."""
    tasks: int
    p_value: float
    """McNemar's exact two-sided test of no difference."""
    detectable: float
    """Smallest difference that this comparison finds with a power of 0.8; see `minimum_detectable_effect`."""


def paired_difference(before: Sequence[bool], after: Sequence[bool], level: float = 0.95) -> PairedDifference:
    """Compares correct and incorrect answers to the same tasks, in the same order.

    Each end of the interval is the outer one of two intervals: Newcombe's, and the one that inverts McNemar's exact
    test. The first covers where few tasks changed, the second agrees with the p-value.
    """
    if len(before) != len(after) or not len(before):
        raise ValueError(f"{len(before)} tasks before and {len(after)} after; the same tasks, at least one, are needed")
    both = sum(1 for a, b in zip(before, after, strict=True) if a and b)
    lost = sum(map(bool, before)) - both
    gained = sum(map(bool, after)) - both
    tasks = len(before)
    value = (gained - lost) / tasks
    score, exact = newcombe(both, lost, gained, tasks, level), _conditional(lost, gained, tasks, level)
    return PairedDifference(
        value=value,
        interval=Interval(min(score.low, exact.low), max(score.high, exact.high)),
        gained=gained,
        lost=lost,
        tasks=tasks,
        p_value=mcnemar(gained, lost),
        detectable=minimum_detectable_effect((gained + lost) / tasks, tasks),
    )


def mcnemar(gained: int, lost: int) -> float:
    """Exact two-sided p-value of changed tasks: gained and lost are equally likely under the null hypothesis."""
    changed = gained + lost
    tail = sum(math.comb(changed, k) for k in range(min(gained, lost) + 1))
    return min(1.0, float(Fraction(2 * tail, 2**changed)))  # exact for any number of tasks


def minimum_detectable_effect(discordant: float, tasks: int, *, level: float = 0.95, power: float = 0.8) -> float:
    """Smallest paired difference of shares that a test at this level finds with this power.

    ``sqrt(c * d / (n + c))`` for a share d of tasks whose outcome differs, with ``c = (z_level + z_power)^2``: 7.85 at
    the usual 95 % and 80 %. It solves ``delta = (z_level + z_power) * sqrt((d - delta^2) / n)``.
    """
    if not 0.0 <= discordant <= 1.0 or tasks < 1:
        raise ValueError(f"{discordant} is not a share of tasks, or {tasks} is not a number of tasks")
    c = (normal_quantile(0.5 + level / 2) + normal_quantile(power)) ** 2
    return math.sqrt(c * discordant / (tasks + c))


def newcombe(both: int, lost: int, gained: int, tasks: int, level: float) -> Interval:
    """Newcombe's method 10 for the share after minus the share before, from the counts of tasks.

    The Wilson intervals of both shares, combined by their distances from the shares, with the correlation phi. Phi is
    reduced by Yates' correction where it is positive.
    """
    neither = tasks - both - lost - gained
    share_before, share_after = (both + lost) / tasks, (both + gained) / tasks
    low_before, high_before = wilson(both + lost, tasks, level)
    low_after, high_after = wilson(both + gained, tasks, level)
    phi = _cautious_phi(both, lost, gained, neither)
    down_after, up_after = share_after - low_after, high_after - share_after
    down_before, up_before = share_before - low_before, high_before - share_before
    down = math.sqrt(max(0.0, down_after**2 - 2 * phi * down_after * up_before + up_before**2))
    up = math.sqrt(max(0.0, up_after**2 - 2 * phi * up_after * down_before + down_before**2))
    difference = share_after - share_before
    return Interval(max(-1.0, difference - down), min(1.0, difference + up))


def _conditional(lost: int, gained: int, tasks: int, level: float) -> Interval:
    """The differences that McNemar's exact test does not reject, given how many tasks changed."""
    changed = lost + gained
    if not changed:
        return Interval(0.0, 0.0)
    low, high = clopper_pearson(gained, changed, level)
    return Interval((2 * low - 1) * changed / tasks, (2 * high - 1) * changed / tasks)


def _cautious_phi(both: int, lost: int, gained: int, neither: int) -> float:
    """Correlation of correct answers before and after; a positive one is shrunk by half a task in each cell."""
    margins = (both + lost) * (gained + neither) * (both + gained) * (lost + neither)
    if margins == 0:
        return 0.0
    product = float(both * neither - lost * gained)
    if product > 0:
        product = max(product - (both + lost + gained + neither) / 2, 0.0)
    return product / math.sqrt(margins)
