"""The logarithm of the ratio of lengths, by hand."""

import math
from random import Random

import pytest

from posttrain.components.annotators import Shown
from posttrain.components.annotators.length import Length


def test_a_longer_text_is_better_by_the_logarithm() -> None:
    found = Length(slope=2.0).opinion(0.5, Shown(texts=("a" * 9, "b" * 4)), Random(0))
    assert found == pytest.approx(0.5 + 2.0 * math.log(10 / 5))
    assert Length().opinion(0.5, Shown(texts=("", "")), Random(0)) == 0.5
    assert Length().opinion(0.5, Shown(texts=("a",)), Random(0)) == 0.5
