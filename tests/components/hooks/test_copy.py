"""A role takes over another one's weights."""

import pytest
from torch import nn

from posttrain.components.hooks.copy import Copy
from posttrain.errors import UserError
from tests.components.hooks.role_states import role_state, weights


def test_it_copies_when_it_is_time_and_leaves_the_source_alone() -> None:
    states = {"policy": role_state("policy", 1, 2, version=8), "reference": role_state("reference", 3, 4, learns=False)}
    copy = Copy(every=3)
    copy(2, states)
    assert weights(states["reference"]) == [3, 4, 4]
    copy(3, states)
    assert weights(states["reference"]) == weights(states["policy"]) == [1, 2, 2]
    assert states["reference"].model.version == 8
    states["policy"].model.first.data.fill_(9.0)  # type: ignore[operator, union-attr]
    assert weights(states["reference"]) == [1, 2, 2], "a copy of its own"
    assert copy.changed == {"reference"} and copy.roles == {"policy", "reference"}


def test_models_of_another_shape_are_refused() -> None:
    states = {"policy": role_state("policy", 1, 2), "reference": role_state("reference", 3, 4, learns=False)}
    states["reference"].model.extra = nn.Parameter(states["policy"].model.first.detach().clone())  # type: ignore[union-attr, operator]
    with pytest.raises(UserError, match=r"'policy' and 'reference' have different shapes: they differ in 'extra'"):
        Copy(every=1)(1, states)


def test_it_stops_after_its_number_of_copies() -> None:
    states = {"policy": role_state("policy", 1, 2, version=8), "reference": role_state("reference", 3, 4, learns=False)}
    once = Copy(every=2, times=1)
    for step in (1, 3, 4, 6):
        once(step, states)
    assert weights(states["reference"]) == [3, 4, 4]
    once(2, states)
    assert weights(states["reference"]) == [1, 2, 2]
