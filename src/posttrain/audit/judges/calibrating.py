"""Calibration of a judge's numbers, measured on labels that it was not fitted to."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from posttrain.errors import UserError
from posttrain.statistics.calibration import brier, calibration_error
from posttrain.statistics.logistic import Platt, platt, sigmoid

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
        raise UserError("all gold labels are of one class, so no chance can be fitted; give right and wrong answers")
    fold_N = np.array([_fold(prompt, folds) for _, _, prompt in labelled])
    chance_N = np.full(len(numbers), np.nan)
    for fold in range(folds):
        inside = fold_N != fold
        known = [(number, label) for number, label, own in zip(numbers, right, inside, strict=True) if own]
        if inside.all() or not known or not (symmetric or len({label for _, label in known}) == 2):
            continue
        made = platt([number for number, _ in known], [label for _, label in known], symmetric=symmetric)
        chance_N[~inside] = made.chance(np.array(numbers)[~inside])
    held = ~np.isnan(chance_N)
    if not held.any():
        raise UserError(f"no fold of {folds} has labels of both classes outside of it; give more gold, or fewer folds")
    raw_N, right_N = sigmoid(numbers), np.array(right)
    stated, raw, labels = chance_N[held], raw_N[held], right_N[held]
    if symmetric:
        stated, raw, labels = (np.concatenate([own, 1 - own]) for own in (stated, raw, labels.astype(float)))
    outcomes = [bool(label) for label in labels]
    return Calibrated(
        fitted=platt(numbers, right, symmetric=symmetric),
        labels=len(numbers),
        error=calibration_error(stated.tolist(), outcomes),
        raw_error=calibration_error(raw.tolist(), outcomes),
        brier=brier(stated.tolist(), outcomes),
        raw_brier=brier(raw.tolist(), outcomes),
    )


def _fold(prompt: str, folds: int) -> int:
    return int.from_bytes(hashlib.blake2b(prompt.encode("utf-8", "replace"), digest_size=4).digest(), "big") % folds
