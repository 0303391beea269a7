"""Roles exchange models, with all that belongs to them."""

import pytest

from posttrain.components.hooks.swap import Swap
from posttrain.errors import UserError
from tests.components.hooks.seats import first_moments, seat, weights


def test_weights_optimizer_versions_and_memories_change_places() -> None:
    seats = {"policy": seat("policy", 1, 2, version=7, mean=0.5), "observer": seat("observer", 3, 4, version=9, mean=2)}
    held = seats["policy"].model
    swap = Swap(pairs={"policy": "observer"}, every=5)
    for step in (1, 2, 3, 4):
        swap(step, seats)
    assert weights(seats["policy"]) == [1, 2, 2], "nothing before its time"
    assert first_moments(seats["policy"]) == pytest.approx([0.1, 0.1])
    swap(5, seats)
    policy, observer = seats["policy"], seats["observer"]
    assert policy.model is held, "samplers and learners hold the objects"
    assert (weights(policy), weights(observer)) == ([3, 4, 4], [1, 2, 2])
    assert first_moments(policy) == pytest.approx([0.3, 0.3]) and first_moments(observer) == pytest.approx([0.1, 0.1])
    assert (policy.model.version, observer.model.version) == (9, 7)
    assert policy.learner is not None and policy.learner.updates == 9
    assert policy.memory["advantage"] == {"mean": 2} and observer.memory["penalties"]["kl"] == {"coefficient": 0.5}
    swap(10, seats)
    assert weights(policy) == [1, 2, 2] and first_moments(policy) == pytest.approx([0.1, 0.1])
    assert policy.memory["advantage"] == {"mean": 0.5}


def test_reset_forgets_moments_and_memories_but_not_updates() -> None:
    seats = {"policy": seat("policy", 1, 2, version=7, mean=0.5), "observer": seat("observer", 3, 4, version=9, mean=2)}
    Swap(pairs={"policy": "observer"}, every=1, reset=True)(1, seats)
    for role in seats.values():
        assert first_moments(role) == []
        assert role.memory == {"advantage": {"mean": 0.0}, "penalties": {"kl": {"coefficient": 0.4}}}
    seats["policy"].memory["penalties"]["kl"] = {"coefficient": 1.0}
    assert seats["policy"].fresh["penalties"] == {"kl": {"coefficient": 0.4}}, "what is fresh stays fresh"
    assert seats["policy"].learner is not None and seats["policy"].learner.updates == 9


def test_an_unknown_role_is_told() -> None:
    with pytest.raises(UserError, match=r"names the role 'observer', but no model plays it here"):
        Swap(pairs={"policy": "observer"}, every=1)(1, {"policy": seat("policy", 1, 2)})
