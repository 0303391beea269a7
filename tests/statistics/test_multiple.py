import numpy as np
import pytest

from posttrain.statistics.multiple import holm


def test_holm_by_hand() -> None:
    # In order: 4 * 0.01 = 0.04, 3 * 0.015 = 0.045, 2 * 0.03 = 0.06, then 1 * 0.04 is raised to 0.06.
    got = holm([0.03, 0.01, 0.04, 0.015])
    assert [one.p_value for one in got] == pytest.approx([0.06, 0.04, 0.06, 0.045])
    # Rejected at alpha / 4 and alpha / 3; the others are kept at the step where it ends, alpha / 2.
    assert [one.level for one in got] == pytest.approx([0.975, 1 - 0.05 / 4, 0.975, 1 - 0.05 / 3])


def test_one_test_is_not_corrected() -> None:
    (got,) = holm([0.04])
    assert (got.p_value, got.level) == (0.04, 0.95)
    assert holm([]) == []


def test_levels_agree_with_decisions() -> None:
    generator = np.random.default_rng(0)
    for _ in range(500):
        p_values = list(generator.uniform(0, 0.1, size=generator.integers(1, 7)))
        for p, one in zip(p_values, holm(p_values), strict=True):
            assert (one.p_value < 0.05) == (p < 1 - one.level)  # p < 1 - level: the interval excludes 0


def test_no_adjusted_p_value_is_above_one() -> None:
    assert [one.p_value for one in holm([0.7, 0.9])] == [1.0, 1.0]
