"""The largest mean of a finite distribution within a chi-squared ball around it."""

from collections.abc import Sequence

import numpy as np


def tilted(values: Sequence[float], weights: Sequence[float], radius: float) -> list[float]:
    """Chances q that maximize sum q v under sum (q - w)^2 / w <= radius, q >= 0; `weights` w add up to 1.

    Where no chance reaches 0 the mean grows by sqrt(radius) standard deviations. A ball that holds it all puts q on the
    largest values.
    """
    v, w = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    spread = float(v[w > 0].max() - v[w > 0].min()) if (w > 0).any() else 0.0
    if radius <= 0 or spread == 0:
        return [float(x) for x in w]
    top = np.where((v == v[w > 0].max()) & (w > 0), w, 0.0)
    if 1.0 / top.sum() - 1.0 <= radius:
        return [float(x) for x in top / top.sum()]
    low, high = v[w > 0].min() - 1e6 * spread, v.max()
    for _ in range(200):  # q is proportional to max(0, v - bound): a higher bound is farther from w
        bound = (low + high) / 2
        q = w * np.maximum(0.0, v - bound)
        q = q / q.sum() if q.sum() > 0 else top / top.sum()
        distance = float(((q - w)[w > 0] ** 2 / w[w > 0]).sum())
        low, high = (bound, high) if distance <= radius else (low, bound)
    q = w * np.maximum(0.0, v - low)
    return [float(x) for x in q / q.sum()]
