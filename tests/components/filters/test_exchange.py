"""What a node learns from: both rules by hand, and where there is little or nothing."""

from dataclasses import replace

from posttrain.components.filters.exchange import Exchange
from posttrain.components.rollouts import Shared
from posttrain.types import Group, Trajectory
from tests.builders import group


def shared(rewards: list[float], draw: float, actor: str = "b", author: str = "policy") -> Group:
    def changed(t: Trajectory) -> Trajectory:
        segments = (t.segments[0], replace(t.segments[1], actor=actor))
        return replace(t, segments=segments, facts=(Shared(author=author, draw=draw),) if author else ())

    made = group(rewards)
    return replace(made, trajectories=tuple(changed(t) for t in made))


def test_two_of_ones_own_and_two_of_others_by_both_rules() -> None:
    """Uniform: of those with an advantage the two smallest draws. Top: the sums 3 and 2, flat or not."""
    groups = [
        shared([1, 1, 1], 0.1),  # flat: no advantage, and the highest sum
        shared([0, 0, 1], 0.9),
        shared([1, 0, 1], 0.5),
        shared([0, 0, 0], 0.0),
        shared([0, 1, 0], 0.2),
        shared([0, 0, 0], 0.0, author=""),
        shared([1, 0, 0], 0.0, author=""),
        shared([1, 1, 0], 0.0, author=""),
        shared([1, 0], 0.3, actor="c"),
    ]

    def kept(**settings: object) -> list[int]:
        found = Exchange(own=2, external=2, **settings)({}, groups)[1]  # type: ignore[arg-type]
        return [next(i for i, g in enumerate(groups) if g is one) for one in found]

    assert kept() == [2, 4, 5, 6, 8]
    assert kept(rule="top") == [0, 2, 5, 6, 8]


def test_nothing_is_taken_where_all_sums_are_zero_and_what_is_there_where_there_is_little() -> None:
    groups = [shared([0, 0], 0.1), shared([0, 0], 0.2)]
    for rule in ("uniform", "top"):
        assert Exchange(rule=rule)({}, groups)[1] == []  # type: ignore[arg-type]
    assert len(Exchange(external=4)({}, [shared([0, 1], 0.1)])[1]) == 1
    assert Exchange(external=0)({}, [shared([0, 1], 0.1)])[1] == []
