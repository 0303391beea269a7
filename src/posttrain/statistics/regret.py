"""How the regret of a bandit player grows with the turns: a logarithm, a line, or both.

Source: EVOLvE, arXiv:2410.06238: f(T) = a ln(T)^k / gap + b T + c is fitted to cumulative regret, with a, b >= 0; a
player that learns has a small k and b near 0. The power k is the best of a grid.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

POWERS: Final = tuple(k / 4 for k in range(1, 17))
"""Values of k that are tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A fitted curve."""

    logarithm: float
    """a, regret per ln(T)^k / gap."""
    power: float
    """k, of the logarithm."""
    line: float
    """b, regret per turn in the long run."""
    constant: float
    """c."""
    error: float
    """Root of the mean squared difference from the curve."""


def growth(regret_T: Sequence[float], gap: float) -> Growth:
    """Fit cumulative regret after turns 1, 2, ... by least squares. Raises `ValueError` for no turns or no gap."""
    if not regret_T or not (math.isfinite(gap) and gap > 0):
        raise ValueError(f"a curve of at least one turn and a gap above 0 are needed, got {len(regret_T)} and {gap}")
    y_T = np.asarray(regret_T, np.float64)
    turn_T = np.arange(1, len(y_T) + 1, dtype=np.float64)
    fits = [_fit(y_T, np.log(turn_T) ** power / gap, turn_T, power) for power in POWERS]
    return min(fits, key=lambda fit: (round(fit.error, 12), fit.power))


def _fit(y_T: NDArray[np.float64], log_T: NDArray[np.float64], turn_T: NDArray[np.float64], power: float) -> Growth:
    """The best a, b >= 0 and c for one power: the best of those with both, one or none of a and b."""
    best: Growth | None = None
    for columns in ((), (0,), (1,), (0, 1)):
        inputs = np.stack([np.ones_like(y_T), *((log_T, turn_T)[column] for column in columns)], 1)
        found, *_ = np.linalg.lstsq(inputs, y_T, rcond=None)
        if (found[1:] < 0).any():
            continue
        own = dict(zip(columns, found[1:].tolist(), strict=True))
        error = float(np.sqrt(np.mean((inputs @ found - y_T) ** 2)))
        fit = Growth(
            logarithm=own.get(0, 0.0), power=power, line=own.get(1, 0.0), constant=float(found[0]), error=error
        )
        best = fit if best is None or error < best.error - 1e-12 else best
    assert best is not None, "the constant alone always fits"
    return best
