"""Weights of one's own, by hand."""

from random import Random

import pytest

from posttrain.components.annotators import Shown
from posttrain.components.annotators.taste import Taste
from posttrain.errors import UserError

PAIR = Shown(texts=("a", "b"), traits={"polite": (1.0, 0.0), "length": (3.0, 5.0)})


def test_traits_are_added_by_weight() -> None:
    assert Taste(weights={"polite": -2.0, "length": 0.5}).opinion(1.0, PAIR, Random(0)) == 1.0 - 2.0 - 1.0
    assert Taste().opinion(1.0, Shown(texts=("a",)), Random(0)) == 1.0


def test_an_unknown_trait_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"a taste for 'rhyme'.*their traits: polite, length.*a column aspects"):
        Taste(weights={"rhyme": 1.0}).opinion(1.0, PAIR, Random(0))
