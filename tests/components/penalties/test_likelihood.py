from dataclasses import replace

import pytest
import torch

from posttrain.components.penalties.likelihood import Likelihood
from posttrain.types import PerToken, Tokens
from tests.builders import gradients, numerical_gradient, random_tokens, tokens


def term_of(penalty: Likelihood, these: Tokens) -> PerToken:
    term = penalty.in_loss(these)
    assert term is not None
    return term


def attempts() -> Tokens:
    """A right one, one of half the tests, a wrong one."""
    return tokens([[-1.0, -2.0], [-3.0], [-4.0, -5.0]], reward_N=[1.0, 0.5, -1.0])


def test_correct_rollouts_only() -> None:
    these = attempts()
    term = term_of(Likelihood(), these)
    assert term.loss_T.tolist() == pytest.approx([0.1, 0.2, 0.0, 0.0, 0.0])
    assert gradients(term.loss_T.sum(), these)["logp_T"].tolist() == pytest.approx([-0.1, -0.1, 0.0, 0.0, 0.0])
    assert term.metrics["share"].tolist() == [1.0, 0.0, 0.0]
    assert term.metrics["nats"].tolist() == [1.0, 2.0]


def test_from_which_score_on() -> None:
    these = attempts()
    assert term_of(Likelihood(coefficient=1.0, at_least=0.5), these).loss_T.tolist() == [1.0, 2.0, 3.0, 0.0, 0.0]
    assert term_of(Likelihood(at_least=2.0), these).loss_T.tolist() == [0.0] * 5
    single = tokens([[-1.0]], reward_N=[0.7], dtype=torch.float32)
    assert term_of(Likelihood(at_least=0.7), single).metrics["share"].tolist() == [1.0], "0.7 is not lost in float32"


def test_where_nobody_was_right_there_is_nothing() -> None:
    these = replace(attempts(), reward_N=torch.tensor([0.5, -1.0, 0.999]))
    term = term_of(Likelihood(), these)
    assert not gradients(term.loss_T.sum(), these)["logp_T"].any()
    assert not len(term.metrics["nats"])


def test_advantages_do_not_matter() -> None:
    these = attempts()
    other = replace(these, advantage_T=-3.0 * torch.ones_like(these.advantage_T))
    assert torch.equal(term_of(Likelihood(), these).loss_T, term_of(Likelihood(), other).loss_T)


def test_finite_differences() -> None:
    these = random_tokens(2)

    def loss(logp_T: torch.Tensor) -> torch.Tensor:
        return term_of(Likelihood(coefficient=0.3), replace(these, logp_T=logp_T)).loss_T.sum()

    found = gradients(loss(these.logp_T), these)["logp_T"]
    torch.testing.assert_close(found, numerical_gradient(loss, these.logp_T), atol=1e-8, rtol=1e-6)
    assert 0 < found.count_nonzero() < len(found)
