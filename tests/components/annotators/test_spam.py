"""Labels that are not about the texts."""

from random import Random

import pytest

from posttrain.components.annotators import Shown
from posttrain.components.annotators.spam import Spam


def test_the_truth_has_no_effect() -> None:
    for true in (-5.0, 5.0):
        assert Spam(always="first").opinion(true, Shown(), Random(0)) == 1.0
        assert Spam(always="second").opinion(true, Shown(middle=3.0), Random(0)) == 2.0
        rng = Random(0)
        found = [Spam().opinion(true, Shown(), rng) for _ in range(2000)]
        assert set(found) == {-1.0, 1.0} and found.count(1.0) / 2000 == pytest.approx(0.5, abs=0.04)
