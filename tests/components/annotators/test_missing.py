"""Labels that are left out."""

from random import Random

import pytest

from posttrain.components.annotators import Shown
from posttrain.components.annotators.missing import Missing


def test_a_share_is_left_out_and_the_others_are_as_they_were() -> None:
    rng = Random(0)
    found = [Missing(rate=0.3).opinion(2.0, Shown(), rng) for _ in range(2000)]
    assert set(found) == {None, 2.0}
    assert found.count(None) / 2000 == pytest.approx(0.3, abs=0.03)
