"""Rollouts that were cut are left out, whatever their score."""

from dataclasses import replace

from posttrain.components.filters.finished import Finished
from tests.builders import group


def cut(rewards: list[float], *places: int):  # type: ignore[no-untyped-def]
    own = group(rewards)
    return replace(
        own,
        trajectories=tuple(replace(t, stop_reason="length") if i in places else t for i, t in enumerate(own)),
    )


def test_cut_rollouts_are_left_out_and_the_scores_of_all_are_kept() -> None:
    _, kept, dropped = Finished()({}, [cut([1.0, 0.0, 0.5], 1)])
    assert [t.sample for t in kept[0]] == [0, 2] and kept[0].pool == (1.0, 0.0, 0.5)
    assert [(t.sample, item.reason) for item in dropped for t in item.group] == [(1, "cut at the token limit")]


def test_a_group_of_cut_rollouts_is_dropped_and_a_whole_one_stays_as_it_is() -> None:
    whole = cut([1.0, 0.0])
    _, kept, dropped = Finished()({}, [cut([1.0, 0.0], 0, 1), whole])
    assert kept == [whole] and len(dropped) == 1 and len(dropped[0].group) == 2
    assert Finished()({}, []) == ({}, [], [])
