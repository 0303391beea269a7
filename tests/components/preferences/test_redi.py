"""REDI: signed likelihoods by hand, what it is at alpha 0 and 1, and what it does to completions that share tokens."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from posttrain.components.preferences import Pairs, compare
from posttrain.components.preferences.redi import REDI
from tests.builders import gradients, tokens

LOGP = [[-3.0, -6.0], [-4.0, -1.0]]
LENGTHS = [[2, 4], [8, 1]]
"""Mean log-probabilities of -1.5 and -1.5, then of -0.5 and -1."""


def pairs(logp: list[list[float]] | Tensor = LOGP, length: list[list[int]] = LENGTHS) -> Pairs:
    logp_P2 = torch.as_tensor(logp, dtype=torch.float64)
    return Pairs(logp_P2=logp_P2 if logp_P2.requires_grad else logp_P2.requires_grad_(), length_P2=torch.tensor(length))


def gradient(loss: REDI, these: Pairs) -> Tensor:
    (found,) = torch.autograd.grad(loss(these).loss_P.sum(), these.logp_P2)
    return found


def test_the_loss_by_hand() -> None:
    """1.5 - 0.8 * 1.5 and 0.5 - 0.8 * 1."""
    result = REDI()(pairs())
    assert result.loss_P.tolist() == pytest.approx([0.3, -0.3])
    assert {name: values.tolist() for name, values in result.metrics.items()} == {
        "pair_accuracy": [0.0, 1.0],
        "pair_margin": [0.0, 0.5],
        "chosen_logp": [-3.0, -4.0],
        "rejected_logp": [-6.0, -1.0],
        "chosen_mean_logp": [-1.5, -0.5],
        "rejected_mean_logp": [-1.5, -1.0],
    }
    assert REDI(alpha=0.5, positive=2.0)(pairs()).loss_P.tolist() == pytest.approx([2.25, 0.5])


def test_the_gradient_is_one_over_the_length_with_a_sign() -> None:
    assert gradient(REDI(), pairs()).tolist() == [[-1 / 2, 0.8 / 4], [-1 / 8, 0.8]]
    assert gradient(REDI(positive=0.0, alpha=1.0), pairs()).tolist() == [[0.0, 1 / 4], [0.0, 1.0]]


@pytest.mark.parametrize("decay", [0.0, 0.7])
def test_finite_differences(decay: float) -> None:
    loss = REDI(alpha=0.6, positive=1.5, decay=decay)
    assert torch.autograd.gradcheck(lambda x: loss(pairs(x)).loss_P, torch.tensor(LOGP).double().requires_grad_())


def test_alpha_0_is_length_normalised_imitation_of_the_chosen() -> None:
    assert gradient(REDI(alpha=0.0), pairs()).tolist() == [[-1 / 2, 0.0], [-1 / 8, 0.0]]


def test_alpha_1_is_simpo_up_to_the_factor_of_its_sigmoid() -> None:
    """SimPO: -log sigmoid(beta (m(chosen) - m(rejected)) - gamma), whose slope is beta sigmoid(gamma - beta margin)."""
    beta, gamma, these = 2.0, 1.0, pairs()
    mean_P2 = these.logp_P2 / these.length_P2
    margin_P = mean_P2[:, 0] - mean_P2[:, 1]
    (simpo,) = torch.autograd.grad(-torch.nn.functional.logsigmoid(beta * margin_P - gamma).sum(), these.logp_P2)
    factor_P = beta * torch.sigmoid(gamma - beta * margin_P.detach())
    torch.testing.assert_close(simpo, factor_P[:, None] * gradient(REDI(alpha=1.0), these))
    unequal = gradient(REDI(alpha=0.8), these)
    assert not torch.allclose(simpo, factor_P[:, None] * unequal)


def test_at_alpha_1_swapping_a_pair_turns_the_gradient_round() -> None:
    swapped = pairs([row[::-1] for row in LOGP], [row[::-1] for row in LENGTHS])
    symmetric, other = REDI(alpha=1.0), REDI(alpha=0.8)
    assert torch.equal(gradient(symmetric, swapped).flip(1), -gradient(symmetric, pairs()))
    assert not torch.allclose(gradient(other, swapped).flip(1), -gradient(other, pairs()))


def test_no_reference_is_asked_for() -> None:
    assert REDI().needs == frozenset()
    assert REDI()(pairs()).loss_P.tolist() == pytest.approx([0.3, -0.3]), "there is none in these pairs"


def test_the_second_term_falls_for_ever_and_with_decay_it_comes_back() -> None:
    """With g = 0.5 the slope alpha exp(g m) (1 + g m) is 0 at m = -2, and negative beyond it."""
    far = [[[-1.0, m]] for m in (-1.0, -2.0, -4.0, -1e4)]
    ones = [[1, 1]]
    assert [REDI(alpha=1.0)(pairs(x, ones)).loss_P.item() for x in far] == [0.0, -1.0, -3.0, -9999.0]
    slopes = [gradient(REDI(alpha=0.8, decay=0.5), pairs(x, ones))[0, 1].item() for x in far]
    assert slopes == pytest.approx([0.8 * math.exp(-0.5) * 0.5, 0.0, -0.8 * math.exp(-2.0), 0.0])


def test_a_completion_without_tokens_counts_as_one() -> None:
    assert REDI()(pairs([[0.0, -2.0]], [[0, 4]])).loss_P.tolist() == pytest.approx([-0.4])


def test_shared_tokens_are_raised_by_the_net_weight() -> None:
    """A working of four tokens and one of two that begin alike: 1 / 4 - alpha / 2 for a token of both, by its sign."""
    for alpha, net in ((0.0, 1 / 4), (0.4, 0.05), (0.8, -0.15), (1.0, -1 / 4)):
        these = tokens(
            [[-1.0] * 4, [-1.0] * 2], advantage=[[1.0] * 4, [-1.0] * 2], behavior_logp=[[math.nan] * 4, [math.nan] * 2]
        )
        loss_T = compare(REDI(alpha=alpha), these).loss_T
        found = -gradients(loss_T[0], these)["logp_T"]
        assert found.tolist() == pytest.approx([1 / 4] * 4 + [-alpha / 2] * 2)
        assert (found[0] + found[4]).item() == pytest.approx(net)


def test_arms_are_ordered_by_plain_descent_and_those_of_negative_weight_are_left() -> None:
    """Chosen 3, 2, 1, 0 times and rejected 0, 1, 2, 3 times: net weights 3, 1.2, -0.6 and -2.4 of three pairs each."""
    pair_P2 = torch.combinations(torch.arange(4), 2)
    logits_A = torch.tensor([-1.0, -0.5, 0.0, 0.5], dtype=torch.float64).requires_grad_()
    first_A = torch.tensor([3.0, 1.2, -0.6, -2.4], dtype=torch.float64)
    for step in range(300):
        loss = REDI()(pairs(logits_A.log_softmax(0)[pair_P2], [[1, 1]] * 6)).loss_P.sum()
        (found,) = torch.autograd.grad(loss, logits_A)
        if step == 0:
            torch.testing.assert_close(found, -(first_A - 1.2 * logits_A.detach().softmax(0)))
        logits_A = (logits_A - 0.05 * found).detach().requires_grad_()
    assert logits_A.argsort(descending=True).tolist() == [0, 1, 2, 3]
    assert logits_A.softmax(0)[0] > 0.99 > 0.01 > logits_A.softmax(0)[2]


@pytest.mark.parametrize("wrong", [{"alpha": -0.1}, {"alpha": 1.1}, {"positive": -1.0}, {"decay": -0.5}])
def test_wrong_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        REDI(**wrong)
