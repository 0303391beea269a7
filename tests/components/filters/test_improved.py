from typing import Literal

import pytest

from posttrain.components.filters.improved import Improved
from posttrain.types import Group
from tests.builders import group, trajectory


@pytest.mark.parametrize(
    ("criterion", "kept"),
    [("better", [0, 2, 4]), ("best", [0, 2, 4, 5])],
)
def test_criteria_by_hand(criterion: Literal["better", "best"], kept: list[int]) -> None:
    """Rewards 0, -1, 0, -1, 1, 1: better than the one before, or as good as all before; the first turn always."""
    _, groups, dropped = Improved(criterion=criterion)({}, [group([0.0, -1.0, 0.0, -1.0, 1.0, 1.0])])
    assert [t.sample for t in groups[0]] == kept
    assert sorted(t.sample for d in dropped for t in d.group) == [i for i in range(6) if i not in kept]


def test_blank_and_repeated_answers() -> None:
    turns = [trajectory(1, reward=0.0, sample=i) for i in range(3)]
    _, groups, dropped = Improved(criterion="new")({}, [Group(trajectories=tuple(turns))])
    assert [t.sample for t in groups[0]] == [0] and [d.reason for d in dropped] == ["the turn is not a new answer"]
