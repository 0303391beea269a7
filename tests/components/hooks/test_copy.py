"""A role takes over another one's weights."""

import pytest
from torch import nn

from posttrain.components.hooks.copy import Copy
from posttrain.errors import UserError
from tests.components.hooks.seats import seat, weights


def test_it_copies_when_it_is_time_and_leaves_the_source_alone() -> None:
    seats = {"policy": seat("policy", 1, 2, version=8), "reference": seat("reference", 3, 4, learns=False)}
    copy = Copy(every=3)
    copy(2, seats)
    assert weights(seats["reference"]) == [3, 4, 4]
    copy(3, seats)
    assert weights(seats["reference"]) == weights(seats["policy"]) == [1, 2, 2]
    assert seats["reference"].model.version == 8
    seats["policy"].model.first.data.fill_(9.0)  # type: ignore[operator, union-attr]
    assert weights(seats["reference"]) == [1, 2, 2], "a copy of its own"
    assert copy.changed == {"reference"} and copy.roles == {"policy", "reference"}


def test_models_of_another_shape_are_refused() -> None:
    seats = {"policy": seat("policy", 1, 2), "reference": seat("reference", 3, 4, learns=False)}
    seats["reference"].model.extra = nn.Parameter(seats["policy"].model.first.detach().clone())  # type: ignore[union-attr, operator]
    with pytest.raises(UserError, match=r"'policy' and 'reference' are not of one shape: they differ in 'extra'"):
        Copy(every=1)(1, seats)
