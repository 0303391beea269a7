"""Laws of the penalties, for every member on arrival."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch

from posttrain.components.penalties import Penalty
from posttrain.signals import Signal
from posttrain.types import FloatArray, Trajectory
from tests.builders import gradients, random_batch, random_tokens, reordered, trajectory, without
from tests.conformance._members import each, members

every_member = pytest.mark.parametrize("penalty", members(Penalty))


def signals_of(penalty: Penalty, attempt: Trajectory, seed: int = 0) -> Mapping[Signal, FloatArray]:
    rng = np.random.default_rng(seed)
    widths = {need: (4,) if need.name in ("embedding", "shown") else () for need in sorted(penalty.needs)}
    return {
        need: -rng.exponential(size=(attempt.num_trained, *width)).astype(np.float32) for need, width in widths.items()
    }


def attempts() -> tuple[Trajectory, ...]:
    return random_batch().trajectories


@every_member
def test_acts_somewhere(penalty: Penalty) -> None:
    attempt = attempts()[0]
    terms = (
        penalty.in_loss(random_tokens(needs=penalty.needs)),
        penalty.in_reward(attempt, signals_of(penalty, attempt)),
    )
    assert any(term is not None for term in terms)
    assert penalty.acts_in_loss == (terms[0] is not None)


@every_member
def test_one_term_a_token(penalty: Penalty) -> None:
    tokens = random_tokens(needs=penalty.needs)
    term = penalty.in_loss(tokens)
    if term is not None:
        assert term.loss_T.shape == tokens.logp_T.shape
        assert term.loss_T.requires_grad, "a term of the loss is differentiated"
        assert all(not values.requires_grad for values in term.metrics.values())
    for attempt in attempts():
        change_T = penalty.in_reward(attempt, signals_of(penalty, attempt))
        if change_T is not None:
            assert change_T.shape == (attempt.num_trained,)
            assert change_T.dtype == np.float32


@every_member
def test_needs_are_exact(penalty: Penalty) -> None:
    tokens, attempt = random_tokens(needs=penalty.needs), attempts()[0]
    signals = signals_of(penalty, attempt)
    penalty.in_loss(tokens)
    penalty.in_reward(attempt, signals)
    for need in penalty.needs:
        with pytest.raises((AssertionError, AttributeError, KeyError, TypeError)):
            penalty.in_loss(without(tokens, need))
            penalty.in_reward(attempt, {name: x for name, x in signals.items() if name != need})


@every_member
@each(gap=[20.0, -20.0, 80.0, -80.0, 200.0, -200.0])
def test_finite_at_extreme_ratios(penalty: Penalty, gap: float) -> None:
    high, low = -5.0, -5.0 - abs(gap)
    ours, theirs = (high, low) if gap > 0 else (low, high)
    tokens = random_tokens(needs=penalty.needs, dtype=torch.float32)
    other_T = torch.full_like(tokens.old_logp_T, theirs)
    tokens = replace(
        tokens,
        logp_T=torch.full_like(other_T, ours).requires_grad_(),
        signals={signal: other_T if signal.name == "logp" else x for signal, x in tokens.signals.items()},
    )
    term = penalty.in_loss(tokens)
    if term is not None:
        assert term.loss_T.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in gradients(term.loss_T.sum(), tokens).values())
    attempt = trajectory(logp=[ours, ours])
    wide = {"embedding": (2, 4), "shown": (2, 4)}
    known = {need: np.full(wide.get(need.name, (2,)), theirs, np.float32) for need in penalty.needs}
    change_T = penalty.in_reward(attempt, known)
    assert change_T is None or np.isfinite(change_T).all()


@every_member
def test_order_of_sequences_does_not_matter(penalty: Penalty) -> None:
    tokens = random_tokens(needs=penalty.needs)
    shuffled, positions = reordered(tokens, [4, 1, 5, 0, 3, 2])
    before, after = penalty.in_loss(tokens), penalty.in_loss(shuffled)
    if before is not None and after is not None:
        torch.testing.assert_close(after.loss_T, before.loss_T[positions])


@every_member
def test_tokens_that_nobody_sampled_cost_no_reward(penalty: Penalty) -> None:
    attempt = trajectory(logp=[-1.0, float("nan"), -1.0])
    change_T = penalty.in_reward(attempt, signals_of(penalty, attempt))
    if change_T is not None:
        assert np.isfinite(change_T).all()
        assert change_T[1] == 0.0
