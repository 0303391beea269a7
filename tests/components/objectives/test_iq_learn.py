"""The implied reward by hand, and its gradient through the values of both states."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from posttrain.components.objectives.iq_learn import IQLearn
from posttrain.components.objectives.likelihood import Likelihood
from posttrain.signals import LOGIT
from posttrain.types import Tokens
from tests.builders import numerical_gradient, random_tokens, tokens

LN2, LN3, LN5 = math.log(2.0), math.log(3.0), math.log(5.0)
LOGITS = torch.tensor([[0.0, LN2, LN5], [LN3, 0.0, 0.0]], dtype=torch.float64)
"""Two states of three actions, with sums of exponentials 8 and 5; action 1 is demonstrated, then action 0, the end."""
CHOSEN = [1, 0]


def tokens_of(logits_TV: Tensor, chosen: list[int], lengths: list[int]) -> Tokens:
    """Sequences of these lengths, with signals that depend on the logits."""
    chosen_T1 = torch.tensor(chosen)[:, None]
    rows = [[-1.0] * length for length in lengths]
    return replace(
        tokens(rows),
        logp_T=logits_TV.log_softmax(1).gather(1, chosen_T1)[:, 0],
        signals={LOGIT: logits_TV.gather(1, chosen_T1)[:, 0]},
    )


def test_two_steps_by_hand() -> None:
    """r = ln 2 - ln 5 for the first, and the last one's logit, ln 3, since nothing comes after it."""
    result = IQLearn(coefficient=0.5)(tokens_of(LOGITS, CHOSEN, [2]))
    first, last = math.log(2 / 5), LN3
    assert result.metrics["implied_reward"].tolist() == pytest.approx([first, last])
    assert result.metrics["implied_reward/squared"].tolist() == pytest.approx([first**2, last**2])
    assert result.metrics["soft_value"].tolist() == pytest.approx([3 * LN2, LN5])
    likelihoods = [math.log(4), math.log(5 / 3)]
    assert result.loss_T.tolist() == pytest.approx([likelihoods[0] + 0.5 * first**2, likelihoods[1] + 0.5 * last**2])
    assert result.loss_T.tolist() == pytest.approx([1.8061, 1.1143], abs=1e-4)


def test_the_gradient_goes_through_both_values_by_hand() -> None:
    """Cross-entropy, then 2 c r on the taken logit, and -2 c gamma r p on the logits of the next state."""
    logits = LOGITS.clone().requires_grad_()
    IQLearn(coefficient=0.5, gamma=0.8)(tokens_of(logits, CHOSEN, [2])).loss_T.sum().backward()
    first = LN2 - 0.8 * LN5
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([1 / 8, 2 / 8 - 1 + first, 5 / 8])
    back = -0.8 * first
    assert logits.grad[1].tolist() == pytest.approx([0.6 - 1 + LN3 + back * 0.6, 0.2 + back * 0.2, 0.2 + back * 0.2])


@pytest.mark.parametrize("gamma", [0.0, 0.7, 1.0])
def test_finite_differences(gamma: float) -> None:
    """Sequences of one, three and two tokens, packed."""
    generator = torch.Generator().manual_seed(0)
    logits = 2.0 * torch.randn(6, 4, generator=generator, dtype=torch.float64)
    chosen = torch.randint(4, (6,), generator=generator).tolist()

    def loss(flat: Tensor) -> Tensor:
        return IQLearn(coefficient=0.3, gamma=gamma)(tokens_of(flat.reshape(6, 4), chosen, [1, 3, 2])).loss_T.sum()

    leaf = logits.flatten().requires_grad_()
    (found,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(found, numerical_gradient(loss, leaf), atol=1e-7, rtol=1e-6)


def test_without_a_coefficient_it_is_the_likelihood() -> None:
    these = random_tokens(needs={LOGIT})
    assert torch.equal(IQLearn(coefficient=0.0)(these).loss_T, Likelihood()(these).loss_T)


def test_without_a_next_state_the_chosen_logit_costs() -> None:
    these = tokens([[-1.0, -2.0]], logit=[[3.0, -0.5]])
    loss_T = IQLearn(coefficient=1.0, gamma=0.0)(these).loss_T
    assert loss_T.tolist() == [1.0 + 9.0, 2.0 + 0.25]


def test_the_offset_of_logits_counts_as_it_does_not_for_the_likelihood() -> None:
    """A constant on the second state's logits: r falls by it in the first token, and rises by it in the second."""
    moved = LOGITS + torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    before, after = (tokens_of(logits, CHOSEN, [2]) for logits in (LOGITS, moved))
    torch.testing.assert_close(Likelihood()(after).loss_T, Likelihood()(before).loss_T)
    change_T = IQLearn().reward(after) - IQLearn().reward(before)
    assert change_T.tolist() == pytest.approx([-2.0, 2.0])
    assert not torch.allclose(IQLearn()(after).loss_T, IQLearn()(before).loss_T)


def test_rewards_of_a_sequence_add_up_to_its_log_likelihood_and_its_first_value() -> None:
    """Undiscounted values cancel one another, within a sequence and not across: neighbours end at zero."""
    generator = torch.Generator().manual_seed(1)
    logits = 3.0 * torch.randn(7, 5, generator=generator, dtype=torch.float64)
    these = tokens_of(logits, [0, 1, 2, 3, 4, 0, 1], [3, 1, 3])
    first_N = logits.logsumexp(1)[[0, 3, 4]]
    torch.testing.assert_close(these.sequence_sum(IQLearn().reward(these)), these.sequence_sum(these.logp_T) + first_N)


def test_nothing_is_learned_from_nothing() -> None:
    none = random_tokens(lengths=(2,), needs={LOGIT}).only(torch.zeros(2, dtype=torch.bool))
    assert IQLearn()(none).loss_T.shape == (0,)
