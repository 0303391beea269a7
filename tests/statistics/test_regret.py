"""Fits of curves of regret whose parts are known."""

import math

import pytest

from posttrain.statistics.regret import growth


def test_a_line_is_a_line() -> None:
    fit = growth([0.4 * turn + 1 for turn in range(1, 101)], gap=0.5)
    assert fit.line == pytest.approx(0.4, abs=1e-6)
    assert fit.logarithm == pytest.approx(0.0, abs=1e-6)
    assert fit.error == pytest.approx(0.0, abs=1e-9)


def test_a_logarithm_is_a_logarithm() -> None:
    fit = growth([2 * math.log(turn) ** 1.5 / 0.5 for turn in range(1, 101)], gap=0.5)
    assert fit.power == 1.5 and fit.logarithm == pytest.approx(2.0) and fit.line == pytest.approx(0.0, abs=1e-9)


def test_no_regret_has_no_growth() -> None:
    fit = growth([0.0] * 20, gap=0.2)
    assert (fit.logarithm, fit.line, fit.constant) == (0.0, 0.0, pytest.approx(0.0))


@pytest.mark.parametrize(("curve", "gap"), [([], 0.5), ([1.0], 0.0), ([1.0], math.nan)])
def test_what_has_no_fit_is_refused(curve: list[float], gap: float) -> None:
    with pytest.raises(ValueError, match="a gap above 0"):
        growth(curve, gap)
