"""Calibration: agreement of stated probabilities with the share of correct answers.

Brier score: Brier 1950, doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2. Calibration error: Naeini et al. 2015,
doi:10.1609/aaai.v29i1.9602, over ten equal bins.
"""

from collections.abc import Sequence

import numpy as np

BINS = 10


def brier(confidences: Sequence[float], correct: Sequence[bool]) -> float:
    """Mean squared distance between confidence and outcome, in [0, 1]; 0 is certain and correct, 0.25 is always 1/2."""
    stated_N, right_N = _paired(confidences, correct)
    return float(np.mean((stated_N - right_N) ** 2))


def calibration_error(confidences: Sequence[float], correct: Sequence[bool], bins: int = BINS) -> float:
    """ECE: distance between mean confidence and accuracy in each of some equal bins, weighed by how many are in it.

    A confidence on an edge is in the upper bin, and 1 in the last one.
    """
    stated_N, right_N = _paired(confidences, correct)
    # Rounded first: 0.3 * 10 is a little above or below 3 otherwise.
    bin_N = np.minimum(np.floor(np.round(stated_N * bins, 9)).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(bin_N, weights=stated_N - right_N)).sum() / len(stated_N))


def auroc(confidences: Sequence[float], correct: Sequence[bool]) -> float | None:
    """Probability that a correct answer has a higher confidence than an incorrect one, ties half; None without both."""
    stated_N, right_N = _paired(confidences, correct)
    right, wrong = np.sort(stated_N[right_N == 1]), np.sort(stated_N[right_N == 0])
    if not (len(right) and len(wrong)):
        return None
    below = np.searchsorted(wrong, right, side="left") + np.searchsorted(wrong, right, side="right")
    return float(below.sum() / (2 * len(right) * len(wrong)))


def calibration(confidences: Sequence[float], correct: Sequence[bool]) -> dict[str, float]:
    """All of these measures by name, with the mean ``confidence``; ``auroc`` only where it is defined."""
    ranked = auroc(confidences, correct)
    return {
        "confidence": float(np.mean(confidences)),
        "calibration_error": calibration_error(confidences, correct),
        "brier": brier(confidences, correct),
        **({} if ranked is None else {"auroc": ranked}),
    }


def _paired(confidences: Sequence[float], correct: Sequence[bool]) -> tuple[np.ndarray, np.ndarray]:
    """Both as [N] float64. Raises `ValueError` where their lengths differ."""
    if not len(confidences) or len(confidences) != len(correct):
        raise ValueError(f"got {len(confidences)} confidences for {len(correct)} outcomes; one each is needed")
    return np.asarray(confidences, np.float64), np.asarray(correct, np.float64)
