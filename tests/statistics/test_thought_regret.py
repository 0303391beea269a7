"""The normalised regret by hand."""

import pytest

from posttrain.statistics.thought_regret import normalised_regret


def test_by_hand() -> None:
    """From (0, 0) to (2, 1/2) an area of 1/2, to (4, 1) of 3/2, then 1 up to 8: 6 of 8."""
    assert normalised_regret([2, 4], [0.5, 1.0], 8) == pytest.approx(0.25)


def test_a_longer_thought_is_cut_on_the_line() -> None:
    """Up to 3: 1/2, and from (2, 1/2) to (3, 3/4) 5/8."""
    assert normalised_regret([2, 4], [0.5, 1.0], 3) == pytest.approx(1 - 1.125 / 3)
    assert normalised_regret([6], [1.0], 3) == pytest.approx(1 - 0.75 / 3)


def test_edges() -> None:
    assert normalised_regret([], [], 5) == 1.0
    assert normalised_regret([1], [0.0], 5) == 1.0
    assert normalised_regret([1e-9], [1.0], 5) == pytest.approx(0.0, abs=1e-6)
    assert normalised_regret([2, 2, 4], [0.0, 1.0, 1.0], 4) == pytest.approx(0.5), "two points at one place: a step"
