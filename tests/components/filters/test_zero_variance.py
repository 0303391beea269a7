import pytest

from posttrain.components.filters.zero_variance import ZeroVariance
from tests.builders import group


def test_keeps_mixed_groups_and_states_why_others_go() -> None:
    groups = [group(r, key=str(i)) for i, r in enumerate([[1, 0], [1, 1, 1], [0, 0], [0.5, 0.25], [1]])]
    _, kept, dropped = ZeroVariance()({}, groups)
    assert kept == [groups[0], groups[3]]
    assert [(item.group.key, item.reason) for item in dropped] == [
        ("1", "all 3 rewards are 1"),
        ("2", "all 2 rewards are 0"),
        ("4", "all 1 rewards are 1"),
    ]


@pytest.mark.parametrize(("tolerance", "survives"), [(0.0, True), (0.1, True), (0.3, False)])
def test_tolerance(tolerance: float, survives: bool) -> None:
    _, kept, _ = ZeroVariance(tolerance=tolerance)({}, [group([0.5, 0.75])])
    assert bool(kept) == survives


def test_sums_that_differ_by_rounding_are_equal() -> None:
    _, kept, _ = ZeroVariance()({}, [group([0.1 + 0.2, 0.3])])
    assert not kept
