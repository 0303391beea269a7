"""Pairs of turns whose values are far enough apart."""

from dataclasses import replace

from posttrain.components.filters.turn_pairs import TurnPairs
from posttrain.types import Group
from tests.builders import group


def node(values: list[float], name: str = "") -> Group:
    return replace(group(values), key=f"task/{name}")


def test_the_best_and_the_worst_are_a_pair_above_floor_and_gap() -> None:
    groups = [node([0.1, 0.9, 0.5]), node([0.4, 0.0]), node([0.7, 0.5, 0.6]), node([0.9])]
    _, [kept], dropped = TurnPairs()({}, groups)
    assert kept.rewards.tolist() == [0.1, 0.9] and kept.pool == (0.1, 0.9, 0.5)
    assert [d.reason for d in dropped] == [
        "neither the best nor the worst turn",
        "the best value is 0.4, not above 0.4",
        "the values differ by 0.2, not above 0.2",
        "a single turn",
    ]


def test_names_are_not_crossed() -> None:
    _, kept, _ = TurnPairs()({}, [node([0.45, 0.1]), node([0.35, -0.5])])
    assert [g.rewards.tolist() for g in kept] == [[0.45, 0.1]], "a floor of .4 and a gap of .2, not the reverse"


def test_the_better_half_of_a_tasks_pairs_stays_and_at_least_one() -> None:
    pairs = [node([0.6, 0.0], "a"), node([0.9, 0.0], "b"), node([0.7, 0.0], "c")]
    _, kept, _ = TurnPairs()({}, pairs)
    assert [g.key for g in kept] == ["task/b"]
    assert len(TurnPairs(half=False)({}, pairs)[1]) == 3 and len(TurnPairs()({}, pairs[:1])[1]) == 1
