"""Calibration of a judge's numbers, measured on labels that it was not fitted to."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from posttrain.errors import UserError
from posttrain.statistics.calibration import brier, calibration_error
from posttrain.statistics.logistic import Platt, isotonic, platt, sigmoid

LEAST = 20
"""Labels below which there is nothing to calibrate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """A calibration and its errors on held-out labels, beside those of the numbers as log-odds."""

    fitted: Platt
    """Fitted to all labels."""
    labels: int
    error: float
    raw_error: float
    brier: float
    raw_brier: float
    isotonic_error: float
    """Of isotonic regression in its place, which needs more labels."""

    def as_json(self) -> dict[str, Any]:
        """As a JSON value, with slope and offset."""
        found = asdict(self)
        return {**found.pop("fitted"), **found}


def calibrate(labelled: Sequence[tuple[float, bool, str]], *, symmetric: bool, folds: int = 5) -> Calibrated:
    """Fit to numbers with their outcomes; those of a prompt are in one fold.

    `symmetric` numbers are margins of the better answer: their probabilities are also those of the other order. Raises
    `UserError` for too few labels and for labels of one class.
    """
    if len(labelled) < LEAST:
        raise UserError(f"a calibration needs at least {LEAST} labels, and {len(labelled)} can be used; give more gold")
    numbers, right = [number for number, _, _ in labelled], [label for _, label, _ in labelled]
    if not symmetric and len(set(right)) < 2:
        only = f"all {len(right)} gold labels are of one class, {'right' if right[0] else 'wrong'}"
        raise UserError(f"{only}, so no chance can be fitted; give right and wrong answers (rating 1 and 0)")
    fold_N = np.array([_fold(prompt, folds) for _, _, prompt in labelled])
    chance_N, isotonic_N = np.full((2, len(numbers)), np.nan)
    for fold in range(folds):
        inside = fold_N != fold
        known = [(number, label) for number, label, own in zip(numbers, right, inside, strict=True) if own]
        if inside.all() or not known or not (symmetric or len({label for _, label in known}) == 2):
            continue
        given = [number for number, _ in known], [label for _, label in known]
        chance_N[~inside] = platt(*given, symmetric=symmetric).chance(np.array(numbers)[~inside])
        isotonic_N[~inside] = isotonic(*given, symmetric=symmetric).chance(np.array(numbers)[~inside])
    held = ~np.isnan(chance_N)
    if not held.any():
        raise UserError(f"no fold of {folds} has labels of both classes outside of it; give more gold, or fewer folds")
    raw_N, right_N = sigmoid(numbers), np.array(right)
    columns = [chance_N[held], raw_N[held], isotonic_N[held], right_N[held].astype(float)]
    if symmetric:
        columns = [np.concatenate([own, 1 - own]) for own in columns]
    stated, raw, other, labels = columns
    outcomes = [bool(label) for label in labels]
    return Calibrated(
        fitted=platt(numbers, right, symmetric=symmetric),
        labels=len(numbers),
        error=calibration_error(stated.tolist(), outcomes),
        raw_error=calibration_error(raw.tolist(), outcomes),
        brier=brier(stated.tolist(), outcomes),
        raw_brier=brier(raw.tolist(), outcomes),
        isotonic_error=calibration_error(other.tolist(), outcomes),
    )


def _fold(prompt: str, folds: int) -> int:
    return int.from_bytes(hashlib.blake2b(prompt.encode("utf-8", "replace"), digest_size=4).digest(), "big") % folds
