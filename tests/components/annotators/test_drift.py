"""A multiple along a line, by hand."""

from random import Random

from posttrain.components.annotators import Shown
from posttrain.components.annotators.drift import Drift


def test_the_opinion_turns_after_half_of_the_tasks() -> None:
    drift = Drift(to=-1.0, after=100)
    found = [drift.opinion(2.0, Shown(number=number), Random(0)) for number in (0, 25, 50, 100, 1000)]
    assert found == [2.0, 1.0, 0.0, -2.0, -2.0]
    assert drift.opinion(4.0, Shown(number=100, middle=3.0), Random(0)) == 2.0
