"""Laws of upkeep, for every member on arrival."""

from dataclasses import fields, replace

import pytest

from posttrain.components.hooks import Upkeep
from tests.components.hooks.seats import seat, weights
from tests.conformance._members import members

every_member = pytest.mark.parametrize("upkeep", members(Upkeep))


@every_member
def test_what_it_changes_is_among_its_roles(upkeep: Upkeep) -> None:
    assert upkeep.roles and upkeep.changed <= upkeep.roles


@every_member
def test_changes_what_it_says_when_it_is_due_and_nothing_before(upkeep: Upkeep) -> None:
    assert "every" in {field.name for field in fields(upkeep)}  # type: ignore[arg-type]
    seldom = replace(upkeep, every=3)  # type: ignore[type-var, call-arg]
    seats = {role: seat(role, i + 1, i + 5) for i, role in enumerate(sorted(seldom.roles))}
    began = {role: weights(of) for role, of in seats.items()}
    for step in (1, 2, 4, 5):
        seldom(step, seats)
        assert {role: weights(of) for role, of in seats.items()} == began
    seldom(6, seats)
    assert {role for role, of in seats.items() if weights(of) != began[role]} == seldom.changed
