"""Renyi differential privacy of the Poisson-subsampled Gaussian mechanism, and a ledger that refuses to overspend.

Sources: Mironov, Talwar and Zhang 2019, arXiv:1908.10530, section 3.3: for integer orders alpha >= 2, a sampling rate q
and a noise multiplier sigma, neighbours that differ in one record,

    rdp = log( sum_k C(alpha, k) (1-q)^(alpha-k) q^k exp(k (k-1) / (2 sigma^2)) ) / (alpha - 1)

and alpha / (2 sigma^2) for q = 1. Steps add up; Mironov 2017, arXiv:1702.07476, proposition 3: epsilon = rdp +
log(1/delta) / (alpha - 1). Where settings of a step depend on what earlier steps released, the sum at one order that is
fixed beforehand is a valid filter (Feldman and Zrnic 2021, arXiv:2008.11193); with settings fixed beforehand the
smallest epsilon over all orders is valid too.

Several Gaussian releases of one batch, with multipliers sigma_g, are one with sigma = (sum sigma_g^-2)^(-1/2).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

ORDERS = (*range(2, 65), 72, 80, 96, 128, 192, 256, 384, 512)
"""Orders at which privacy is counted."""


def joint(multipliers: Sequence[float]) -> float:
    """The multiplier of one Gaussian release that is as private as several of one batch."""
    return 1.0 / math.sqrt(sum(1.0 / sigma**2 for sigma in multipliers))


def rdp(q: float, sigma: float, order: int) -> float:
    """Renyi divergence of one step at an integer order from 2. Raises `ValueError` for numbers out of range."""
    if not (0.0 <= q <= 1.0 and sigma > 0.0 and order >= 2):
        raise ValueError(f"q {q}, sigma {sigma}, order {order}: 0 <= q <= 1, sigma above 0, a whole order from 2")
    if q == 0.0:
        return 0.0
    if q == 1.0:
        return order / (2.0 * sigma**2)
    terms = [
        math.lgamma(order + 1) - math.lgamma(k + 1) - math.lgamma(order - k + 1)
        + (order - k) * math.log1p(-q) + k * math.log(q) + k * (k - 1) / (2.0 * sigma**2)
        for k in range(order + 1)
    ]  # fmt: skip
    largest = max(terms)
    total = largest + math.log(sum(math.exp(term - largest) for term in terms))
    return max(0.0, total / (order - 1))


@dataclass
class Ledger:
    """What was spent of a budget (epsilon, delta)."""

    epsilon: float
    delta: float
    order: int | None = None
    """The one order that counts, for settings that depend on earlier releases; None takes the best of all."""
    spent: dict[int, float] = field(default_factory=dict)
    """Sum of the Renyi divergences by order."""

    def __post_init__(self) -> None:
        """Start at zero, at the orders that count."""
        orders = ORDERS if self.order is None else (self.order,)
        self.spent = {order: self.spent.get(order, 0.0) for order in orders}

    def affords(self, q: float, sigma: float) -> bool:
        """Whether a further step keeps within the budget."""
        return self._epsilon(self._after(q, sigma)) <= self.epsilon

    def charge(self, q: float, sigma: float) -> None:
        """Count a step. Raises `ValueError` for one that would exceed the budget; nothing is counted then."""
        after = self._after(q, sigma)
        if not self._epsilon(after) <= self.epsilon:
            raise ValueError(f"a step with q {q:.4g} and sigma {sigma:.4g} would exceed epsilon {self.epsilon:g}")
        self.spent = after

    @property
    def value(self) -> float:
        """Epsilon of all counted steps; 0 before the first."""
        return self._epsilon(self.spent) if any(self.spent.values()) else 0.0

    def _after(self, q: float, sigma: float) -> dict[int, float]:
        return {order: total + rdp(q, sigma, order) for order, total in self.spent.items()}

    def _epsilon(self, spent: dict[int, float]) -> float:
        return min(total + math.log(1.0 / self.delta) / (order - 1) for order, total in spent.items())


def best_order(q: float, sigma: float, steps: int, delta: float) -> int:
    """The order of the smallest epsilon of `steps` equal steps."""

    def epsilon(order: int) -> float:
        return steps * rdp(q, sigma, order) + math.log(1.0 / delta) / (order - 1)

    found: int = min(ORDERS, key=epsilon)
    return found


def calibrated(q: float, steps: int, epsilon: float, delta: float) -> float:
    """The smallest multiplier, to 0.1 %, with which `steps` steps keep within the budget; infinity if none up to 1e4
    does.
    """

    def fits(sigma: float) -> bool:
        order = best_order(q, sigma, steps, delta)
        return steps * rdp(q, sigma, order) + math.log(1.0 / delta) / (order - 1) <= epsilon

    low, high = 0.05, 1e4
    if not fits(high):
        return math.inf
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high
