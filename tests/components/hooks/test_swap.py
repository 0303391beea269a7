"""Roles swap models, with all that belongs to them."""

import pytest

from posttrain.components.hooks.swap import Swap
from posttrain.errors import UserError
from tests.components.hooks.role_states import first_moments, role_state, weights


def test_weights_optimizer_versions_and_memories_change_places() -> None:
    states = {
        "policy": role_state("policy", 1, 2, version=7, mean=0.5),
        "observer": role_state("observer", 3, 4, version=9, mean=2),
    }
    held = states["policy"].model
    swap = Swap(pairs={"policy": "observer"}, every=5)
    for step in (1, 2, 3, 4):
        swap(step, states)
    assert weights(states["policy"]) == [1, 2, 2], "nothing before its time"
    assert first_moments(states["policy"]) == pytest.approx([0.1, 0.1])
    swap(5, states)
    policy, observer = states["policy"], states["observer"]
    assert policy.model is held, "samplers and learners hold the objects"
    assert (weights(policy), weights(observer)) == ([3, 4, 4], [1, 2, 2])
    assert first_moments(policy) == pytest.approx([0.3, 0.3]) and first_moments(observer) == pytest.approx([0.1, 0.1])
    assert (policy.model.version, observer.model.version) == (9, 7)
    assert policy.learner is not None and policy.learner.updates == 9
    assert policy.state["advantage"] == {"mean": 2} and observer.state["penalties"]["kl"] == {"coefficient": 0.5}
    swap(10, states)
    assert weights(policy) == [1, 2, 2] and first_moments(policy) == pytest.approx([0.1, 0.1])
    assert policy.state["advantage"] == {"mean": 0.5}


def test_reset_forgets_moments_and_memories_but_not_updates() -> None:
    states = {
        "policy": role_state("policy", 1, 2, version=7, mean=0.5),
        "observer": role_state("observer", 3, 4, version=9, mean=2),
    }
    Swap(pairs={"policy": "observer"}, every=1, reset=True)(1, states)
    for role in states.values():
        assert first_moments(role) == []
        assert role.state == {"advantage": {"mean": 0.0}, "penalties": {"kl": {"coefficient": 0.4}}}
    states["policy"].state["penalties"]["kl"] = {"coefficient": 1.0}
    assert states["policy"].initial["penalties"] == {"kl": {"coefficient": 0.4}}, "what is fresh stays fresh"
    assert states["policy"].learner is not None and states["policy"].learner.updates == 9


def test_an_unknown_role_is_reported() -> None:
    with pytest.raises(UserError, match=r"names the role 'observer', which this stage does not have"):
        Swap(pairs={"policy": "observer"}, every=1)(1, {"policy": role_state("policy", 1, 2)})
