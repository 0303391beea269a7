"""A role follows another one's weights."""

import pytest

from posttrain.components.hooks.ema import EMA
from tests.components.hooks.role_states import role_state, weights


def test_it_goes_a_part_of_the_way() -> None:
    states = {"policy": role_state("policy", 1, 2), "reference": role_state("reference", 5, 0, learns=False)}
    ema = EMA(decay=0.75, every=2)
    ema(1, states)
    assert weights(states["reference"]) == [5, 0, 0]
    ema(2, states)
    # 0.75 * 5 + 0.25 * 1 = 4; 0.25 * 2 = 0.5
    assert weights(states["reference"]) == pytest.approx([4, 0.5, 0.5])
    ema(4, states)
    # 0.75 * 4 + 0.25 = 3.25; 0.375 + 0.5 = 0.875
    assert weights(states["reference"]) == pytest.approx([3.25, 0.875, 0.875])
    assert weights(states["policy"]) == [1, 2, 2]
    assert ema.changed == {"reference"}


def test_no_decay_is_a_copy() -> None:
    states = {"policy": role_state("policy", 1, 2), "reference": role_state("reference", 5, 0, learns=False)}
    EMA(decay=0.0)(1, states)
    assert weights(states["reference"]) == [1, 2, 2]


def test_a_decay_that_grows_begins_as_a_copy() -> None:
    """With 0.1 a step up to 0.3: after step 1 the average keeps a tenth, after step 5 three tenths."""
    states = {"policy": role_state("policy", 1, 2), "average": role_state("average", 11, 0, learns=False)}
    ema = EMA(target="average", decay=0.3, ramp=0.1)
    ema(1, states)
    assert weights(states["average"]) == pytest.approx([2, 1.8, 1.8])  # 0.1 * 11 + 0.9 * 1; 0.9 * 2
    ema(5, states)
    assert weights(states["average"]) == pytest.approx([1.3, 1.94, 1.94])  # 0.3 * 2 + 0.7; 0.54 + 1.4
