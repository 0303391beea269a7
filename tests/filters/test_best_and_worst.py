import pytest

from posttrain.filters.best_and_worst import BestAndWorst
from posttrain.types import Group
from tests.builders import group


def rewards(groups: list[Group]) -> list[list[float]]:
    return [g.rewards.tolist() for g in groups]


def test_the_highest_and_the_lowest_stay_in_their_order() -> None:
    _, kept, dropped = BestAndWorst()({}, [group([0.5, 0.1, 0.9, 0.3]), group([2.0, 1.0])])
    assert rewards(kept) == [[0.1, 0.9], [2.0, 1.0]]
    assert kept[0].pool == (0.5, 0.1, 0.9, 0.3), "for advantages that compare with all of them"
    assert [(item.group.rewards.tolist(), item.reason) for item in dropped] == [
        ([0.5, 0.3], "neither the best nor the worst")
    ]


def test_the_second_best_can_be_what_the_best_is_compared_with() -> None:
    _, kept, dropped = BestAndWorst(against="second")({}, [group([0.5, 0.1, 0.9, 0.3])])
    assert rewards(kept) == [[0.5, 0.9]]
    assert dropped[0].reason == "neither the best nor the second"


def test_of_equals_the_first_is_taken() -> None:
    _, kept, _ = BestAndWorst()({}, [group([0.0, 1.0, 0.0, 1.0])])
    assert [[t.sample for t in g] for g in kept] == [[0, 1]]


def test_ties_are_left_out_whole() -> None:
    _, kept, dropped = BestAndWorst()({}, [group([0.5, 0.5, 0.5 + 1e-9])])
    assert not kept
    assert len(dropped[0].group) == 3
    _, kept, _ = BestAndWorst(against="second")({}, [group([1.0, 1.0, 0.0])])
    assert not kept


@pytest.mark.parametrize(("margin", "survives"), [(0.0, True), (0.2, True), (0.25, False)])
def test_margin(margin: float, survives: bool) -> None:
    _, kept, dropped = BestAndWorst(margin=margin)({}, [group([0.5, 0.75])])
    assert bool(kept) == survives
    assert survives or dropped[0].reason == "the best is 0.25 above the worst, no more than 0.25"


def test_incomplete_groups_are_left_out() -> None:
    _, kept, dropped = BestAndWorst(attempts=4)({}, [group([0.0, 1.0, 2.0]), group([0.0, 1.0, 2.0, 3.0])])
    assert rewards(kept) == [[0.0, 3.0]]
    assert dropped[0].reason == "3 attempts, fewer than 4"
    _, kept, dropped = BestAndWorst()({}, [group([1.0])])
    assert not kept and dropped[0].reason == "1 attempts, fewer than 2"
