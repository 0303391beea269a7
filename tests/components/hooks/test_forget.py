"""An optimizer begins anew, and nothing else changes."""

import pytest

from posttrain.components.hooks.forget import Forget
from posttrain.errors import UserError
from tests.components.hooks.seats import first_moments, seat, weights


def test_moments_are_forgotten_when_it_is_due_and_nothing_else_is() -> None:
    """The moments of gradients of 1 are 0.1 after one update."""
    seats = {"policy": seat("policy", 1, 2, version=7, mean=0.5), "critic": seat("critic", 3, 4)}
    forget = Forget(every=3)
    for step in (1, 2):
        forget(step, seats)
        assert first_moments(seats["policy"]) == pytest.approx([0.1, 0.1])
    forget(3, seats)
    policy = seats["policy"]
    assert first_moments(policy) == []
    assert first_moments(seats["critic"]) == pytest.approx([0.3, 0.3])
    assert weights(policy) == [1, 2, 2]
    assert policy.learner is not None and (policy.learner.updates, policy.model.version) == (7, 7)
    assert policy.memory["advantage"] == {"mean": 0.5}


def test_a_role_that_does_not_learn_is_told_at_once() -> None:
    frozen = {"reference": seat("reference", 1, 2, learns=False)}
    with pytest.raises(UserError, match=r"'reference', which does not learn in this stage"):
        Forget(role="reference", every=5)(1, frozen)
    with pytest.raises(UserError, match="no model plays it here"):
        Forget(role="critic")(1, frozen)
