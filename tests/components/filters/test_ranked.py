import pytest

from posttrain.components.filters.ranked import Ranked
from posttrain.types import Group
from tests.builders import group


def rewards(groups: list[Group]) -> list[list[float]]:
    return [g.rewards.tolist() for g in groups]


def test_the_best_of_each_group_with_four_rollouts() -> None:
    groups = [group([0.1, 0.7, 0.3, 0.2], key="a"), group([9.0, 5.0, 6.0, 7.0], key="b")]
    _, kept, dropped = Ranked(keep=0.25)({}, groups)
    assert rewards(kept) == [[0.7], [9.0]]
    assert kept[0].pool == (0.1, 0.7, 0.3, 0.2), "for advantages that compare with all of them"
    assert [(item.group.rewards.tolist(), item.reason) for item in dropped] == [
        ([0.1, 0.3, 0.2], "not among the best 0.25 (local)"),
        ([5.0, 6.0, 7.0], "not among the best 0.25 (local)"),
    ]


def test_of_the_whole_step_an_easy_task_may_give_all() -> None:
    groups = [group([0.1, 0.7, 0.3, 0.2], key="a"), group([9.0, 5.0, 6.0, 7.0], key="b")]
    _, kept, dropped = Ranked(rank="global", keep=0.25)({}, groups)
    assert [g.key for g in kept] == ["b"]
    assert rewards(kept) == [[9.0, 7.0]]
    assert sum(len(item.group) for item in dropped) == 6


@pytest.mark.parametrize(("keep", "count"), [(0.001, 1), (0.29, 29), (0.295, 29), (0.57, 57), (1.0, 100)])
def test_a_share_is_rounded_down_and_never_to_none(keep: float, count: int) -> None:
    """Of a hundred rollouts; in floating point, 0.29 times 100 is less than 29."""
    _, kept, _ = Ranked(keep=keep)({}, [group([float(i) for i in range(100)])])
    assert rewards(kept) == [[float(i) for i in range(100 - count, 100)]]


def test_of_equals_the_first_is_taken() -> None:
    _, kept, _ = Ranked(keep=0.5)({}, [group([0.0, 1.0, 1.0, 1.0])])
    assert [t.sample for t in kept[0]] == [1, 2]


@pytest.mark.parametrize("rank", ["local", "global"])
def test_what_is_too_bad_is_not_kept_even_if_it_is_best(rank: str) -> None:
    groups = [group([0.0, 0.2], key="a"), group([1.0, 0.9], key="b")]
    _, kept, _ = Ranked(rank=rank, keep=1.0, at_least=0.9)({}, groups)  # type: ignore[arg-type]
    assert rewards(kept) == [[1.0, 0.9]]
