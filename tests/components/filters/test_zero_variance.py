from dataclasses import replace

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


def test_by_correctness_rewards_may_differ() -> None:
    """A penalty on length makes rewards of correct rollouts differ, and may make a wrong one's equal a right one's."""
    correct, mixed = group([2, 1], key="a"), group([1, 0], key="b")
    alike = replace(mixed, trajectories=tuple(t.scored(replace(t.score, value=0.0)) for t in mixed if t.score))
    _, kept, dropped = ZeroVariance(by="correctness")({}, [correct, mixed, alike])
    assert kept == [mixed, alike]
    assert [item.reason for item in dropped] == ["all 2 are correct"]
    assert ZeroVariance()({}, [correct, mixed, alike])[1] == [correct, mixed]


def test_rewards_of_turns_count() -> None:
    """As environments of other libraries give them: the scores are equal, and the returns differ."""
    given = group([0, 0])
    first, second = given.trajectories
    rewarded = replace(first, segments=(*first.segments[:-1], replace(first.segments[-1], reward=1.0)))
    _, kept, _ = ZeroVariance()({}, [replace(given, trajectories=(rewarded, second))])
    assert len(kept) == 1 and kept[0].rewards.tolist() == [1.0, 0.0]
