import math
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.filters.best_demonstration import BestDemonstration
from posttrain.types import Group, Score, Segment, Trajectory
from tests.builders import group


def refined(own: list[float], shown: list[float]) -> Group:
    """Rollouts with these scores, then demonstrations with these."""
    whole = group([*own, *shown])

    def demonstration(attempt: Trajectory) -> Trajectory:
        segment = Segment(actor="demonstration", token_ids=np.arange(3), trained=True, text="shown")
        return replace(attempt, segments=(attempt.segments[0], segment))

    attempts = whole.trajectories
    return replace(whole, trajectories=(*attempts[: len(own)], *map(demonstration, attempts[len(own) :])))


@pytest.mark.parametrize(
    ("own", "shown", "kept"),
    [
        ([0, 0, 1], [0, 1, 1], [1, 2, 4]),  # the first right one
        ([1, 1, 1], [0, 0, 0], [1, 2, 3]),  # a wrong one is kept too
        ([0, 0, 0], [0.1, 0.5, 0.5], [1, 2, 4]),  # or else the first of the best
        ([0, 0], [1], [1, 2]),
        ([], [0, 1], [1]),
        ([0, 1], [], [0, 1]),
    ],
)
def test_the_first_of_the_best_replaces_the_first_rollout(
    own: list[float], shown: list[float], kept: list[int]
) -> None:
    whole = refined(own, shown)
    state, [left], dropped = BestDemonstration()({}, [whole])
    assert [t.sample for t in left] == kept and state == {}
    assert sorted(t.sample for item in dropped for t in item.group) == sorted(set(range(len(whole))) - set(kept))


def test_a_right_one_goes_before_a_higher_score_that_is_not_right() -> None:
    whole = refined([0], [0, 0])
    scores = [Score(value=0.0, status="wrong"), Score(value=5.0, status="wrong"), Score(value=1.0, status="ok")]
    whole = replace(whole, trajectories=tuple(t.scored(s) for t, s in zip(whole, scores, strict=True)))
    _, [left], _ = BestDemonstration()({}, [whole])
    assert [t.sample for t in left] == [2]


def test_the_two_have_different_reasons_and_the_group_can_grow() -> None:
    whole = refined([0, 0], [1, 1])
    _, _, dropped = BestDemonstration()({}, [whole])
    assert {item.reason: [t.sample for t in item.group] for item in dropped} == {
        "another demonstration is better, or as good": [3],
        "a demonstration replaces it": [0],
    }
    _, [left], _ = BestDemonstration(in_place=False)({}, [whole])
    assert [t.sample for t in left] == [0, 1, 2]
    assert not any(math.isnan(r) for r in left.rewards)
