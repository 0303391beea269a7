import pytest

from posttrain.statistics.slopes import fit_line


def test_a_line_by_hand() -> None:
    """Points 1, 2, 4 at 0, 1, 2: slope 1.5, intercept 5/6; residuals 1/6, -1/3, 1/6; R2 = 1 - (1/6) / (14/3)."""
    line = fit_line([0, 1, 2], [1, 2, 4])
    assert (line.slope, line.intercept, line.r2) == pytest.approx((1.5, 5 / 6, 1 - (1 / 6) / (14 / 3)))
    flat = fit_line([1, 2, 3], [0.5, 0.5, 0.5])
    assert (flat.slope, flat.r2) == (0.0, 1.0)


@pytest.mark.parametrize(("x", "y"), [([1.0], [1.0]), ([1.0, 1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0])])
def test_too_few_points_are_refused(x: list[float], y: list[float]) -> None:
    with pytest.raises(ValueError, match="two different x"):
        fit_line(x, y)
