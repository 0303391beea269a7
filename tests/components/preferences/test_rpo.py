"""RPO: by hand on DPO and on IPO, sum and mean, with and without beta; and a chosen completion that does not fall."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.preferences import Pairs, PreferenceLoss
from posttrain.components.preferences.dpo import DPO
from posttrain.components.preferences.ipo import IPO
from posttrain.components.preferences.redi import REDI
from posttrain.components.preferences.rpo import RPO
from posttrain.signals import OLD_LOGP, logp_of
from tests.builders import gradients, tokens

FORMS = [("sum", True), ("sum", False), ("mean", True), ("mean", False)]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def pairs(logp_P2: Tensor | None = None) -> Pairs:
    """Margins h of 2 and -3 nats beside the reference; chosen completions of 3 nats in 2 tokens, of 4 nats in 5."""
    if logp_P2 is None:
        logp_P2 = torch.tensor([[-3.0, -5.0], [-4.0, -1.0]], dtype=torch.float64, requires_grad=True)
    return Pairs(
        logp_P2=logp_P2,
        length_P2=torch.tensor([[2, 4], [5, 1]]),
        reference_logp_P2={logp_of("reference"): torch.full_like(logp_P2, -4.0).detach()},
    )


def gradient(loss: PreferenceLoss) -> list[list[float]]:
    these = pairs()
    (found,) = torch.autograd.grad(loss(these).loss_P.sum(), these.logp_P2)
    rows: list[list[float]] = found.tolist()
    return rows


@pytest.mark.parametrize(
    ("length", "times_beta", "added", "slopes"),
    [
        ("sum", True, [0.2 * 0.5 * 3.0, 0.2 * 0.5 * 4.0], [0.1, 0.1]),
        ("sum", False, [0.2 * 3.0, 0.2 * 4.0], [0.2, 0.2]),
        ("mean", True, [0.1 * 1.5, 0.1 * 0.8], [0.05, 0.02]),
        ("mean", False, [0.2 * 1.5, 0.2 * 0.8], [0.1, 0.04]),
    ],
)
def test_dpo_by_hand(length: str, times_beta: bool, added: list[float], slopes: list[float]) -> None:
    """With beta 1/2 the margins are 1 and -3/2; the rejected completions' gradient is that of DPO."""
    loss = RPO(loss=DPO(beta=0.5), eta=0.2, length=length, times_beta=times_beta)  # type: ignore[arg-type]
    result = loss(pairs())
    of_pair = [math.log1p(math.exp(-1.0)), math.log1p(math.exp(1.5))]
    assert result.loss_P.tolist() == pytest.approx([a + b for a, b in zip(of_pair, added, strict=True)])
    lift = [0.5 * sigmoid(-1.0), 0.5 * sigmoid(1.5)]
    expected = [[-u - v, u] for u, v in zip(lift, slopes, strict=True)]
    assert gradient(loss) == [pytest.approx(row) for row in expected]
    nll = [3.0, 4.0] if length == "sum" else [1.5, 0.8]
    assert result.metrics["chosen_nll"].tolist() == pytest.approx(nll)
    assert result.metrics["pair_margin"].tolist() == [1.0, -1.5]


def test_it_composes_with_ipo() -> None:
    """IPO with beta 1/4 aims at a margin of 2: (2 - 2)^2 = 0 and (-3 - 2)^2 = 25, with slopes 0 and -10."""
    loss = RPO(loss=IPO(beta=0.25), eta=0.4)
    assert loss(pairs()).loss_P.tolist() == pytest.approx([0.0 + 0.1 * 3.0, 25.0 + 0.1 * 4.0])
    assert gradient(loss) == [pytest.approx([-0.1, 0.0]), pytest.approx([-10.0 - 0.1, 10.0])]
    assert RPO(loss=IPO(reference="old")).needs == {OLD_LOGP}


@pytest.mark.parametrize("inner", [DPO(beta=0.3, label_smoothing=0.1), IPO(beta=0.3), DPO(reference=None)])
@pytest.mark.parametrize(("length", "times_beta"), FORMS)
def test_without_weight_it_is_the_loss_inside_to_the_bit(inner: PreferenceLoss, length: str, times_beta: bool) -> None:
    outer = RPO(loss=inner, eta=0.0, length=length, times_beta=times_beta)  # type: ignore[arg-type]
    assert torch.equal(outer(pairs()).loss_P, inner(pairs()).loss_P)
    assert gradient(outer) == gradient(inner)
    assert outer.needs == inner.needs


@pytest.mark.parametrize(("length", "times_beta"), FORMS)
@pytest.mark.parametrize("inner", [DPO(beta=0.3), IPO(beta=0.3)])
def test_finite_differences(inner: PreferenceLoss, length: str, times_beta: bool) -> None:
    loss = RPO(loss=inner, eta=0.3, length=length, times_beta=times_beta)  # type: ignore[arg-type]
    logp_P2 = pairs().logp_P2
    assert torch.autograd.gradcheck(lambda x_P2: loss(pairs(x_P2)).loss_P, logp_P2)


def test_in_the_loop_the_term_counts_once_a_group() -> None:
    """Both completions of a pair carry its loss, of which the mean over sequences is taken once."""
    objective = Pairwise(loss=RPO(loss=DPO(beta=0.5, reference=None), eta=0.2))
    these = tokens([[-1.0, -2.0], [-2.0]], advantage=[[1.0, 1.0], [-1.0]], group_N=[0, 0])
    result = objective(these)
    expected = math.log1p(math.exp(0.5)) + 0.1 * 3.0
    assert result.loss_T.tolist() == pytest.approx([expected] * 3)
    weight_T = torch.tensor([0.25, 0.25, 0.5], dtype=torch.float64)
    found = gradients((result.loss_T * weight_T).sum(), these)["logp_T"].tolist()
    lift = 0.5 * sigmoid(0.5)
    assert found == pytest.approx([-lift - 0.1, -lift - 0.1, lift])


def test_beta_must_be_there_to_multiply_by() -> None:
    with pytest.raises(ValidationError, match="the loss 'redi' has no beta; set times_beta to false"):
        RPO(loss=REDI())
    assert RPO(loss=REDI(), times_beta=False).exceptions == REDI().exceptions
    with pytest.raises(ValidationError):
        RPO(eta=-0.1)


def learned(loss: PreferenceLoss, steps: int = 200) -> list[float]:
    """Log-probabilities of A = xa, B = xb and anything else, after descent on the pair (A, B) of one softmax.

    A and B share a feature, as completions share a prefix, and the one of B is stronger: to lower B lowers A too.
    """
    features_AF = torch.tensor([[1.0, 0.5], [2.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    weights_F = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    reference_A = (features_AF @ weights_F).log_softmax(0).detach()
    pair_P2 = torch.tensor([[0, 1]])
    for _ in range(steps):
        logp_A = (features_AF @ weights_F).log_softmax(0)
        these = Pairs(
            logp_P2=logp_A[pair_P2],
            length_P2=torch.ones_like(pair_P2),
            reference_logp_P2={logp_of("reference"): reference_A[pair_P2]},
        )
        (slope_F,) = torch.autograd.grad(loss(these).loss_P.sum(), weights_F)
        weights_F = (weights_F - slope_F).detach().requires_grad_()
    return [float(x) for x in (features_AF @ weights_F.detach()).log_softmax(0)]


def test_a_chosen_completion_that_dpo_lowers_does_not_fall() -> None:
    at_first = math.log(1 / 3)
    plain = learned(DPO(beta=1.0))
    held = learned(RPO(loss=DPO(beta=1.0), eta=0.2, length="mean", times_beta=False))
    assert plain[0] < at_first - 0.1, "DPO lowers both, the rejected one more"
    assert held[0] > at_first
    assert plain[0] > plain[1] and held[0] > held[1], "both put the pair in order"


def test_what_is_in_no_pair_gets_less_the_larger_eta() -> None:
    """Mass that DPO moves to a completion that nobody has scored is over-optimisation."""
    unseen = [math.exp(learned(RPO(loss=DPO(beta=1.0), eta=eta))[2]) for eta in (0.0, 0.05, 0.5)]
    assert unseen[0] > unseen[1] > unseen[2]
    assert unseen[0] > 1 / 3 > unseen[2]
