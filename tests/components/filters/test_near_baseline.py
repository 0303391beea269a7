"""Rollouts that are as good as the others of their group."""

from posttrain.components.filters.near_baseline import NearBaseline
from tests.builders import group


def kept_places(rewards: list[float], **settings: object) -> list[int]:
    _, kept, dropped = NearBaseline(**settings)({}, [group(rewards)])  # type: ignore[arg-type]
    assert all(one.pool == tuple(rewards) for one in kept) or not dropped
    return [t.sample for one in kept for t in one]


def test_distances_are_from_the_mean_of_the_others() -> None:
    """With 0, 0.5 and 1 the others' means are 0.75, 0.5 and 0.25."""
    assert kept_places([0.0, 0.5, 1.0]) == [0, 2]
    assert kept_places([0.0, 0.5, 1.0], positive=True) == [2]
    assert kept_places([0.0, 0.5, 1.0], smallest=0.8) == []
    assert kept_places([0.0, 1.0, 1.0, 1.0]) == [0, 1, 2, 3]  # 1 - 2/3 and 0 - 1


def test_equal_rewards_and_a_group_of_one_give_nothing() -> None:
    assert kept_places([0.3, 0.3, 0.3]) == []
    assert kept_places([0.3, 0.3], smallest=0.0) == []
    assert kept_places([1.0]) == []


def test_a_whole_group_has_no_pool() -> None:
    _, (kept,), dropped = NearBaseline()({}, [group([0.0, 1.0])])
    assert kept.pool == () and not dropped
