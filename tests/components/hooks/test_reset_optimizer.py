"""An optimizer is reset, and nothing else changes."""

import pytest

from posttrain.components.hooks.reset_optimizer import ResetOptimizer
from posttrain.errors import UserError
from tests.components.hooks.role_states import first_moments, role_state, weights


def test_moments_are_dropped_when_it_is_due_and_nothing_else_is() -> None:
    """The moments of gradients of 1 are 0.1 after one update."""
    states = {"policy": role_state("policy", 1, 2, version=7, mean=0.5), "critic": role_state("critic", 3, 4)}
    reset = ResetOptimizer(every=3)
    for step in (1, 2):
        reset(step, states)
        assert first_moments(states["policy"]) == pytest.approx([0.1, 0.1])
    reset(3, states)
    policy = states["policy"]
    assert first_moments(policy) == []
    assert first_moments(states["critic"]) == pytest.approx([0.3, 0.3])
    assert weights(policy) == [1, 2, 2]
    assert policy.learner is not None and (policy.learner.updates, policy.model.version) == (7, 7)
    assert policy.state["advantage"] == {"mean": 0.5}


def test_a_role_that_does_not_learn_is_reported_at_once() -> None:
    frozen = {"reference": role_state("reference", 1, 2, learns=False)}
    with pytest.raises(UserError, match=r"'reference', which is not trained in this stage"):
        ResetOptimizer(role="reference", every=5)(1, frozen)
    with pytest.raises(UserError, match="which this stage does not have"):
        ResetOptimizer(role="critic")(1, frozen)
