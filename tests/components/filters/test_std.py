"""The filter of ReST-RL: by the population standard deviation."""

import pytest

from posttrain.components.filters.std import Std
from tests.builders import group


@pytest.mark.parametrize(
    ("rewards", "kept"),
    [
        ([1, 0, 1, 0], True),
        ([1, 1], False),
        ([0.5], False),
        ([0.0, 0.0, 0.0, 0.1], False),
        ([0.0, 0.0, 0.0, 0.2], True),
    ],
)
def test_by_hand(rewards: list[float], kept: bool) -> None:
    """Of 0, 0, 0, x it is x sqrt(3) / 4: 0.0433 and 0.0866."""
    _, left, dropped = Std()({}, [group(rewards)])
    assert bool(left) is kept and bool(dropped) is not kept


def test_the_bound_belongs_to_what_is_kept_and_the_reason_states_it() -> None:
    _, left, _ = Std(least=0.5)({}, [group([0.0, 1.0])])
    assert left
    _, _, [dropped] = Std(least=0.6)({}, [group([0.0, 1.0])])
    assert dropped.reason == "the std of the rewards is 0.5, below 0.6"
