"""The line of least squares through a few points: its slope, and how well it fits."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """y = intercept + slope x."""

    slope: float
    intercept: float
    r2: float
    """Share of the variance of y that the line has; 1 where y is constant."""


def fit_line(x: Sequence[float], y: Sequence[float]) -> Line:
    """Ordinary least squares. Raises `ValueError` for fewer than two different x, or other numbers of both."""
    if len(x) != len(y) or len(set(x)) < 2:
        raise ValueError(f"as many y as x and two different x are needed, got {len(x)} and {len(y)}")
    x_N, y_N = np.asarray(x, np.float64), np.asarray(y, np.float64)
    away_N = x_N - x_N.mean()
    slope = float((away_N * y_N).sum() / (away_N**2).sum())
    intercept = float(y_N.mean() - slope * x_N.mean())
    total = float(((y_N - y_N.mean()) ** 2).sum())
    left = float(((y_N - intercept - slope * x_N) ** 2).sum())
    return Line(slope=slope, intercept=intercept, r2=1.0 - left / total if total > 1e-12 else 1.0)
