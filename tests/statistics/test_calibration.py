import numpy as np
import pytest

from posttrain.statistics.calibration import auroc, brier, calibration, calibration_error

STATED = [0.9, 0.9, 0.9, 0.1]
RIGHT = [True, True, False, False]


def test_by_hand() -> None:
    assert brier(STATED, RIGHT) == pytest.approx((0.01 + 0.01 + 0.81 + 0.01) / 4)
    # Upper bin: 0.9 stated, 2/3 right, three of four; lower bin: 0.1 stated, none right, one of four.
    assert calibration_error(STATED, RIGHT) == pytest.approx(0.75 * (0.9 - 2 / 3) + 0.25 * 0.1)
    # Pairs (right, wrong): 0.9 > 0.1 twice, 0.9 = 0.9 twice.
    assert auroc(STATED, RIGHT) == pytest.approx((2 + 2 * 0.5) / 4)
    assert calibration(STATED, RIGHT) == {
        "confidence": pytest.approx(0.7),
        "calibration_error": calibration_error(STATED, RIGHT),
        "brier": brier(STATED, RIGHT),
        "auroc": auroc(STATED, RIGHT),
    }


def test_edges_of_bins() -> None:
    assert calibration_error([0.3, 0.35], [True, False]) == pytest.approx(abs(0.65 - 1) / 2), "one bin"
    assert calibration_error([0.29, 0.3], [True, False]) == pytest.approx((0.71 + 0.3) / 2), "two bins"
    assert calibration_error([1.0, 0.95], [True, True]) == pytest.approx(0.025), "1 is in the last bin"
    assert calibration_error([0.2, 0.8], [False, True], bins=1) == pytest.approx(0.0)


def test_well_calibrated_answers_have_little_error() -> None:
    rng = np.random.default_rng(0)
    stated = rng.integers(0, 11, 20_000) / 10
    right = rng.random(20_000) < stated
    assert calibration_error(stated.tolist(), right.tolist()) < 0.02
    assert calibration_error((1 - stated).tolist(), right.tolist()) > 0.4


def test_without_both_outcomes_there_is_nothing_to_rank() -> None:
    assert auroc([0.5, 0.9], [True, True]) is None
    assert "auroc" not in calibration([0.5], [False])


def test_ranking_is_the_share_of_pairs() -> None:
    rng = np.random.default_rng(1)
    stated, right = rng.integers(0, 5, 60) / 4, rng.random(60) < 0.4
    pairs = [(p > n) + 0.5 * (p == n) for p in stated[right] for n in stated[~right]]
    assert auroc(stated.tolist(), right.tolist()) == pytest.approx(np.mean(pairs))


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="got 1 confidences for 2 outcomes"):
        brier([0.5], [True, False])
    with pytest.raises(ValueError):
        calibration_error([], [])
