"""An offset for the first text."""

from random import Random

from posttrain.components.annotators import Shown
from posttrain.components.annotators.position import Position


def test_the_offset_is_of_the_first_text_whichever_it_is() -> None:
    for gap in (0.5, -0.5):
        assert Position(offset=2.0).opinion(gap, Shown(texts=("a", "b")), Random(0)) == gap + 2.0
    assert Position(offset=2.0).opinion(0.5, Shown(texts=("a",)), Random(0)) == 0.5
