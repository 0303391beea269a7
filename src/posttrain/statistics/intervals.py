"""Confidence intervals: of a proportion, of a mean, of a mean over clusters, and of a paired difference by bootstrap.

Sources: Wilson 1927, *Probable inference* (the score interval of a proportion); Student's t for means; the sandwich
standard error for clustered data as in Miller 2024, arXiv:2411.00640, section 2.2; Efron's percentile bootstrap.
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


class Interval(NamedTuple):
    """Both ends of a confidence interval."""

    low: float
    high: float

    def overlaps(self, other: "Interval") -> bool:
        """Whether the intervals have a common number."""
        return self.low <= other.high and other.low <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A number that was measured on a sample, with its standard error and interval."""

    value: float
    standard_error: float
    interval: Interval


def wilson(correct: int, total: int, level: float = 0.95) -> Interval:
    """Wilson's score interval of a proportion; [0, 1] when nothing was counted."""
    if not 0 <= correct <= total:
        raise ValueError(f"{correct} correct of {total}: the first must lie between 0 and the second")
    if total == 0:
        return Interval(0.0, 1.0)
    z = normal_quantile(0.5 + level / 2)
    share = correct / total
    centre = share + z * z / (2 * total)
    reach = z * math.sqrt(share * (1 - share) / total + (z / (2 * total)) ** 2)
    scale = 1 + z * z / total
    # The ends are exactly 0 and 1 there; rounding would leave 1e-17.
    low = 0.0 if correct == 0 else (centre - reach) / scale
    high = 1.0 if correct == total else (centre + reach) / scale
    return Interval(low, high)


def clopper_pearson(correct: int, total: int, level: float = 0.95) -> Interval:
    """Exact interval of a proportion: the shares that neither tail of the binomial test rejects."""
    if not 0 <= correct <= total:
        raise ValueError(f"{correct} correct of {total}: the first must lie between 0 and the second")
    tail = 0.5 - level / 2

    def share_of(wanted: float, a: int, b: int) -> float:
        """The x with I_x(a, b) = wanted, by halving."""
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if _incomplete_beta(middle, 1 - middle, a, b) < wanted else (low, middle)
        return (low + high) / 2

    return Interval(
        0.0 if correct == 0 else share_of(tail, correct, total - correct + 1),
        1.0 if correct == total else share_of(1 - tail, correct + 1, total - correct),
    )


def mean(values: ArrayLike, level: float = 0.95) -> Estimate:
    """Mean with Student's t interval; unbounded for a single value."""
    x_N = _vector(values)
    if len(x_N) == 1:
        return Estimate(value=float(x_N[0]), standard_error=math.inf, interval=Interval(-math.inf, math.inf))
    error = float(x_N.std(ddof=1)) / math.sqrt(len(x_N))
    return _student(float(x_N.mean()), error, len(x_N) - 1, level)


def clustered_mean(values: ArrayLike, clusters: Sequence[Hashable], level: float = 0.95) -> Estimate:
    """Mean of values in clusters (samples of one task) that are independent of one another.

    The squared standard error is ``C/(C-1) * sum_c (sum_i (x_ci - mean))^2 / N^2`` for C clusters and N values, and
    the t interval has C - 1 degrees of freedom. With clusters of one it is `mean`.
    """
    x_N = _vector(values)
    if len(clusters) != len(x_N):
        raise ValueError(f"{len(x_N)} values with {len(clusters)} cluster labels; one label per value is needed")
    names = list(dict.fromkeys(clusters))
    index = {name: position for position, name in enumerate(names)}
    center = float(x_N.mean())
    if len(names) == 1:
        return Estimate(value=center, standard_error=math.inf, interval=Interval(-math.inf, math.inf))
    residual_C = np.zeros(len(names))
    np.add.at(residual_C, [index[name] for name in clusters], x_N - center)
    variance = float(residual_C @ residual_C) / len(x_N) ** 2 * len(names) / (len(names) - 1)
    return _student(center, math.sqrt(variance), len(names) - 1, level)


def paired_bootstrap(
    before: ArrayLike, after: ArrayLike, *, level: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Estimate:
    """Mean of ``after - before`` over the same items, with the percentile interval of resampled items."""
    return bootstrap_mean(_differences(before, after), level=level, resamples=resamples, seed=seed)


def bootstrap_mean(values: ArrayLike, *, level: float = 0.95, resamples: int = 10_000, seed: int = 0) -> Estimate:
    """Mean over items, with the percentile interval of resampled items; the seed decides the draws."""
    x_N = _vector(values)
    generator = np.random.Generator(np.random.Philox(seed))
    means = np.empty(resamples)
    rows = max(1, 2_000_000 // len(x_N))
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        means[start : start + count] = x_N[generator.integers(len(x_N), size=(count, len(x_N)))].mean(axis=1)
    low, high = np.quantile(means, [0.5 - level / 2, 0.5 + level / 2])
    return Estimate(
        value=float(x_N.mean()),
        standard_error=float(means.std(ddof=1)),
        interval=Interval(float(low), float(high)),
    )


def normal_quantile(probability: float) -> float:
    """The z below which a standard normal falls with this probability."""
    return NormalDist().inv_cdf(probability)


def t_quantile(probability: float, degrees: float) -> float:
    """The t below which Student's distribution with these degrees of freedom falls with this probability."""
    if not 0.0 < probability < 1.0 or not degrees > 0:
        raise ValueError(f"no t quantile for probability {probability} and {degrees} degrees of freedom")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, 2 * high
    while high - low > 1e-13 * (1.0 + high):
        middle = (low + high) / 2
        if t_cdf(middle, degrees) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_cdf(t: float, degrees: float) -> float:
    """Probability that Student's distribution gives at most t: one half of an incomplete beta function is the tail."""
    square = t * t
    tail = 0.5 * _incomplete_beta(degrees / (degrees + square), square / (degrees + square), degrees / 2, 0.5)
    return 1.0 - tail if t >= 0 else tail


def _incomplete_beta(x: float, y: float, a: float, b: float) -> float:
    """Regularised incomplete beta function I_x(a, b), by its continued fraction (DLMF 8.17.22).

    ``y`` is 1 - x, an argument because the difference would lose digits where x is close to 1.
    """
    if x <= 0.0 or y <= 0.0:
        return 0.0 if x <= 0.0 else 1.0
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly, use I_x(a, b) = 1 - I_y(b, a)
        return 1.0 - _incomplete_beta(y, x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(y)
    return math.exp(log_front) / a / _beta_fraction(x, a, b)


def _beta_fraction(x: float, a: float, b: float) -> float:
    """1 + d1/(1 + d2/(1 + ...)) of the incomplete beta function, evaluated from the front by Lentz's method."""
    tiny = 1e-300
    value, numerator, denominator = 1.0, 1.0, 0.0
    for n in range(1, 20_000):
        m = n // 2
        if n % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1.0 / (1.0 + d * denominator or tiny)
        numerator = 1.0 + d / numerator or tiny
        value *= numerator * denominator
        if abs(numerator * denominator - 1.0) < 1e-15:
            return value
    raise ArithmeticError(f"the incomplete beta function did not converge at x={x}, a={a}, b={b}")


def _student(value: float, error: float, degrees: int, level: float) -> Estimate:
    """An estimate with a t interval of the given degrees of freedom."""
    reach = t_quantile(0.5 + level / 2, degrees) * error
    return Estimate(value=value, standard_error=error, interval=Interval(value - reach, value + reach))


def _vector(values: ArrayLike) -> NDArray[np.float64]:
    """[N] finite float64 values, at least one."""
    x_N = np.asarray(values, np.float64).reshape(-1)
    if len(x_N) == 0 or not np.isfinite(x_N).all():
        raise ValueError(f"{len(x_N)} values, {int((~np.isfinite(x_N)).sum())} not finite; some finite ones are needed")
    return x_N


def _differences(before: ArrayLike, after: ArrayLike) -> NDArray[np.float64]:
    """[N] after minus before of the same items."""
    before_N, after_N = _vector(before), _vector(after)
    if len(before_N) != len(after_N):
        raise ValueError(f"{len(before_N)} items before and {len(after_N)} after; the same items are needed")
    return after_N - before_N
