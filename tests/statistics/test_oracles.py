"""Numbers of judges and annotators are those of other packages: choix, krippendorff, scikit-learn, crowd-kit."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

from posttrain.statistics.annotators import SPREAD, Comparison, alpha, kappa, merits
from posttrain.statistics.calibration import brier
from posttrain.statistics.logistic import RIDGE, isotonic, platt, regress, sigmoid
from tests.statistics.test_annotators import planted, tau


def test_merits_without_scales_and_offsets_are_choixs() -> None:
    """Its penalty is alpha times the sum of squares, ours half of that over the variance of the prior."""
    choix: Any = pytest.importorskip("choix")
    _, comparisons = planted(0, 600)
    found = merits(comparisons, 30, 5, scales=False, offsets=False)
    won = [(j.first, j.second) if j.first_wins else (j.second, j.first) for j in comparisons]
    expected = choix.opt_pairwise(30, won, alpha=1 / (2 * SPREAD**2), tol=1e-10)
    np.testing.assert_allclose(found.merit_I, expected - expected.mean(), atol=1e-4)
    separated = [(0, 1)] * 5
    assert np.abs(choix.opt_pairwise(2, separated, alpha=1e-12)).max() > 5, "without a prior it only stops somewhere"
    assert np.abs(merits([Comparison(0, 1, 0, True)] * 5, 2, 1).merit_I).max() < 5


def test_alpha_is_krippendorffs() -> None:
    krippendorff: Any = pytest.importorskip("krippendorff")
    rng = np.random.default_rng(0)
    for missing in (0.0, 0.3, 0.6):
        labels = rng.integers(0, 3, (4, 40)).astype(float)
        labels[1:, ::2] = labels[0, ::2]  # half of the units are agreed on
        labels[rng.random(labels.shape) < missing] = np.nan
        units: list[dict[Hashable, Hashable]] = [
            {a: int(x) for a, x in enumerate(unit) if not np.isnan(x)} for unit in labels.T
        ]
        expected = krippendorff.alpha(reliability_data=labels, level_of_measurement="nominal")
        assert alpha(units) == pytest.approx(expected, abs=1e-12)


def test_platt_regression_kappa_and_brier_are_scikit_learns() -> None:
    calibration: Any = pytest.importorskip("sklearn.calibration")
    linear: Any = pytest.importorskip("sklearn.linear_model")
    metrics: Any = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    x_N, z_N = rng.normal(size=200), rng.normal(size=200)
    y_N = rng.random(200) < sigmoid(2 * x_N - 0.5)
    slope, offset = calibration._sigmoid_calibration(x_N, y_N.astype(float))
    found = platt(x_N.tolist(), y_N.tolist())
    assert (found.slope, found.offset) == pytest.approx((-slope, -offset), abs=1e-3)
    fit = regress(np.stack([x_N, z_N], 1), y_N.astype(float), range(200))
    penalized = linear.LogisticRegression(C=1 / RIDGE, fit_intercept=False, tol=1e-10, max_iter=1000)
    expected = penalized.fit(np.stack([x_N, z_N], 1), y_N).coef_[0]
    np.testing.assert_allclose([effect.value for effect in fit.effects], expected, atol=1e-5)
    other_N = np.where(rng.random(200) < 0.7, y_N, ~y_N)
    both = list(zip(y_N.tolist(), other_N.tolist(), strict=True))
    assert kappa(both) == pytest.approx(metrics.cohen_kappa_score(y_N, other_N))
    chance_N = found.chance(x_N)
    assert brier(chance_N.tolist(), y_N.tolist()) == pytest.approx(metrics.brier_score_loss(y_N, chance_N))


@pytest.mark.parametrize("ties", [False, True])
def test_isotonic_regression_is_scikit_learns(ties: bool) -> None:
    library: Any = pytest.importorskip("sklearn.isotonic")
    rng = np.random.default_rng(2)
    x_N = rng.normal(size=150).round(1 if ties else 12)
    y_N = rng.random(150) < sigmoid(x_N)
    theirs = library.IsotonicRegression(out_of_bounds="clip").fit(x_N, y_N.astype(float))
    asked_N = np.linspace(-4, 4, 101)
    np.testing.assert_allclose(isotonic(x_N.tolist(), y_N.tolist()).chance(asked_N), theirs.predict(asked_N), atol=1e-9)


def test_merits_beside_crowd_kits_where_one_annotator_is_reversed_and_one_prefers_the_first() -> None:
    """An oracle among peers: its noisy Bradley-Terry has no offset and no negative scale."""
    pandas: Any = pytest.importorskip("pandas")
    aggregation: Any = pytest.importorskip("crowdkit.aggregation")
    true, comparisons = planted(0, 1500)
    rows = [(j.annotator, j.first, j.second, j.first if j.first_wins else j.second) for j in comparisons]
    data = pandas.DataFrame(rows, columns=["worker", "left", "right", "label"])

    def of(compared: Any) -> float:
        found = aggregation.NoisyBradleyTerry(n_iter=100, random_state=0).fit_predict(compared)
        return tau(found.sort_index().to_numpy(), true)

    theirs, alone = of(data), of(data[data.worker < 2])
    ours = tau(merits(comparisons, 30, 5).merit_I, true)
    assert ours > theirs + 0.05 and ours > 0.85 and alone > 0.8
