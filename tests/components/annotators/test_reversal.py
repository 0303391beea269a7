"""The opposite."""

from random import Random

from posttrain.components.annotators import Shown
from posttrain.components.annotators.reversal import Reversal


def test_the_opinion_is_mirrored_at_the_middle() -> None:
    assert Reversal().opinion(2.0, Shown(), Random(0)) == -2.0
    assert Reversal().opinion(5.0, Shown(middle=3.0), Random(0)) == 1.0
