"""Groups with both outcomes."""

from dataclasses import replace

from posttrain.components.filters.mixed import Mixed
from posttrain.types import Group, Score
from tests.builders import group


def scored(*outcomes: tuple[float, bool]) -> Group:
    """A group with these values and outcomes."""
    plain = group([value for value, _ in outcomes])
    scores = [Score(value=value, status="ok" if good else "wrong") for value, good in outcomes]
    return replace(plain, trajectories=tuple(t.scored(s) for t, s in zip(plain, scores, strict=True)))


def test_it_goes_by_correctness_and_not_by_rewards() -> None:
    both = scored((1.0, True), (0.1, False))
    formats = scored((0.1, False), (0.0, False))  # rewards differ, but nothing is correct
    right = scored((1.0, True), (0.9, True))
    _, kept, dropped = Mixed()({}, [both, formats, right])
    assert kept == [both]
    assert [item.reason for item in dropped] == ["0 of 2 rollouts are correct", "2 of 2 rollouts are correct"]
