"""A bonus for the texts of one writer."""

from random import Random

import pytest

from posttrain.components.annotators import Shown
from posttrain.components.annotators.own_style import OwnStyle
from posttrain.errors import UserError


def test_the_bonus_is_of_the_writer() -> None:
    for writers, bonus in ((("own", "x"), 1.5), (("x", "own"), -1.5), (("own", "own"), 0.0)):
        shown = Shown(texts=("a", "b"), writers=writers)
        assert OwnStyle(bonus=1.5).opinion(0.5, shown, Random(0)) == 0.5 + bonus
    assert OwnStyle().opinion(0.5, Shown(texts=("a",)), Random(0)) == 0.5


def test_unknown_writers_are_refused() -> None:
    with pytest.raises(UserError, match=r"texts of 'own'.*do not state who wrote what.*writer_chosen"):
        OwnStyle().opinion(0.5, Shown(texts=("a", "b")), Random(0))
