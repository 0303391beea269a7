"""A role follows another one's weights."""

import pytest

from posttrain.components.hooks.average import Average
from tests.components.hooks.seats import seat, weights


def test_it_goes_a_part_of_the_way() -> None:
    seats = {"policy": seat("policy", 1, 2), "reference": seat("reference", 5, 0, learns=False)}
    average = Average(decay=0.75, every=2)
    average(1, seats)
    assert weights(seats["reference"]) == [5, 0, 0]
    average(2, seats)
    # 0.75 * 5 + 0.25 * 1 = 4; 0.25 * 2 = 0.5
    assert weights(seats["reference"]) == pytest.approx([4, 0.5, 0.5])
    average(4, seats)
    # 0.75 * 4 + 0.25 = 3.25; 0.375 + 0.5 = 0.875
    assert weights(seats["reference"]) == pytest.approx([3.25, 0.875, 0.875])
    assert weights(seats["policy"]) == [1, 2, 2]
    assert average.changed == {"reference"}


def test_no_decay_is_a_copy() -> None:
    seats = {"policy": seat("policy", 1, 2), "reference": seat("reference", 5, 0, learns=False)}
    Average(decay=0.0)(1, seats)
    assert weights(seats["reference"]) == [1, 2, 2]
