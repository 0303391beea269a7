"""Laws of hooks, for every member on arrival."""

from dataclasses import fields, replace

import pytest

from posttrain.components.hooks import Hook
from tests.components.hooks.role_states import role_state, weights
from tests.conformance._members import members

OF_LAYERS = ("qk_clip",)
every_member = pytest.mark.parametrize("hook", members(Hook))


@every_member
def test_what_it_changes_is_among_its_roles(hook: Hook) -> None:
    assert hook.roles and hook.changed <= hook.roles


@every_member
def test_changes_what_it_declares_when_it_is_due_and_nothing_before(hook: Hook) -> None:
    assert "every" in {field.name for field in fields(hook)}  # type: ignore[arg-type]
    if hook.kind in OF_LAYERS:
        pytest.skip("it changes layers, which these models have none of; its own tests have a model with layers")
    seldom = replace(hook, every=3)  # type: ignore[type-var, call-arg]
    states = {role: role_state(role, i + 1, i + 5) for i, role in enumerate(sorted(seldom.roles))}
    began = {role: weights(of) for role, of in states.items()}
    for step in (1, 2, 4, 5):
        seldom(step, states)
        assert {role: weights(of) for role, of in states.items()} == began
    seldom(6, states)
    assert {role for role, of in states.items() if weights(of) != began[role]} == seldom.changed
