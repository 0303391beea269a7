"""pass@k: the unbiased estimate from n >= k samples.

Source: Chen et al. 2021, arXiv:2107.03374, equation 1: ``1 - C(n - c, k) / C(n, k)``.
"""

import math
from collections.abc import Sequence

from posttrain.statistics.intervals import Estimate, bootstrap_mean


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """Unbiased estimate for one task with `correct` answers among `samples`."""
    if not 1 <= k <= samples or not 0 <= correct <= samples:
        raise ValueError(f"pass@{k} needs 1 <= k <= samples and 0 <= correct <= samples; got {correct} of {samples}")
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def mean_pass_at_k(
    samples: Sequence[int],
    correct: Sequence[int],
    k: int,
    *,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Estimate:
    """pass@k averaged over tasks, with an interval from resampled tasks (samples of one task are not independent)."""
    values = [pass_at_k(n, c, k) for n, c in zip(samples, correct, strict=True)]
    return bootstrap_mean(values, level=level, resamples=resamples, seed=seed)
