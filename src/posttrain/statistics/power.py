"""Power of Student's paired t test: what a number of seeds can find.

The power is exact for normal differences: with S the ratio of the estimated to the true std, the test statistic is
noncentral t, and ``P(|T| > c) = E[Phi(d - c S) + Phi(-d - c S)]`` for a difference of d standard errors.
"""

import math
from functools import cache

import numpy as np

from posttrain.statistics.intervals import t_quantile

_POINTS = 801


def power(difference: float, std: float, seeds: int, level: float = 0.95) -> float:
    """Chance that the test finds a true difference; `std` is that of a seed's paired difference."""
    if not std > 0 or seeds < 2:
        raise ValueError(f"got std {std} and {seeds} seeds; a std above 0 and two seeds or more are needed")
    return _power(abs(difference) / std * math.sqrt(seeds), seeds - 1, level)


def detectable(std: float, seeds: int, *, level: float = 0.95, wanted: float = 0.8) -> float:
    """Smallest true difference that the test finds with a chance of `wanted`; infinite for one seed."""
    return math.inf if seeds < 2 else _shift(seeds - 1, level, wanted) * std / math.sqrt(seeds)


@cache
def _shift(degrees: int, level: float, wanted: float) -> float:
    """Standard errors of the difference that is found with a chance of `wanted`."""
    low, high = 0.0, 4.0
    while _power(high, degrees, level) < wanted:
        low, high = high, 2 * high
    for _ in range(35):
        middle = (low + high) / 2
        low, high = (middle, high) if _power(middle, degrees, level) < wanted else (low, middle)
    return high


def seeds_for(
    difference: float, std: float, *, level: float = 0.95, wanted: float = 0.8, most: int = 1000
) -> int | None:
    """Fewest seeds that find a difference with a chance of `wanted`; None where `most` do not suffice."""
    if power(difference, std, most, level) < wanted:
        return None
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if power(difference, std, middle, level) < wanted else (low, middle)
    return high


def _power(shift: float, degrees: int, level: float) -> float:
    """Chance of a noncentral t beyond the critical value, by Simpson's rule over S."""
    reach = 12 / math.sqrt(degrees)
    s_N = np.linspace(max(0.0, 1 - reach), 1 + reach, _POINTS)
    weight_N = np.where(np.arange(_POINTS) % 2, 4.0, 2.0)
    weight_N[[0, -1]] = 1.0
    with np.errstate(divide="ignore"):
        log_s_N = np.log(s_N) if degrees > 1 else np.zeros(_POINTS)
    half = degrees / 2
    log_density_N = math.log(2) + half * math.log(half) - math.lgamma(half) + (degrees - 1) * log_s_N - half * s_N * s_N
    critical = t_quantile(0.5 + level / 2, degrees)
    beyond_N = _normal_cdf(shift - critical * s_N) + _normal_cdf(-shift - critical * s_N)
    return float((s_N[1] - s_N[0]) / 3 * (weight_N * np.exp(log_density_N) @ beyond_N))


def _normal_cdf(x_N: "np.ndarray") -> "np.ndarray":
    """[N] standard normal distribution function."""
    return np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in x_N])
