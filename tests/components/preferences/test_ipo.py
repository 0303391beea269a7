import pytest
import torch
from torch import Tensor

from posttrain.components.preferences import Pairs
from posttrain.components.preferences.ipo import IPO
from posttrain.signals import OLD_LOGP, logp_of


def pairs(logp_P2: Tensor) -> Pairs:
    """Margins h beside the reference; completions of 2 and 4 tokens, then of 1 and 1."""
    reference_P2 = torch.full_like(logp_P2, -4.0).detach()
    return Pairs(
        logp_P2=logp_P2,
        length_P2=torch.tensor([[2, 4], [1, 1]]),
        reference_logp_P2={logp_of("reference"): reference_P2},
    )


LOGP_P2 = torch.tensor([[-3.0, -6.0], [-4.0, -1.0]], dtype=torch.float64)


def test_the_loss_by_hand() -> None:
    result = IPO(beta=0.25)(pairs(LOGP_P2))
    assert result.loss_P.tolist() == [(3.0 - 2.0) ** 2, (-3.0 - 2.0) ** 2]
    assert {name: values.tolist() for name, values in result.metrics.items()} == {
        "pair_accuracy": [1.0, 0.0],
        "pair_margin": [3.0, -3.0],
        "chosen_logp": [-3.0, -4.0],
        "rejected_logp": [-6.0, -1.0],
    }


def test_by_token() -> None:
    assert IPO(beta=0.25, average=True)(pairs(LOGP_P2)).loss_P.tolist() == [(1 / 2 + 2 / 4 - 2.0) ** 2, 25.0]


@pytest.mark.parametrize("average", [False, True])
def test_finite_differences(average: bool) -> None:
    loss = IPO(beta=0.3, average=average)
    assert torch.autograd.gradcheck(lambda x: loss(pairs(x)).loss_P, LOGP_P2.clone().requires_grad_())


def test_a_margin_beyond_the_aim_is_brought_back() -> None:
    far = torch.tensor([[0.0, -10.0], [0.0, -10.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(IPO(beta=0.25)(pairs(far)).loss_P.sum(), far)
    assert (gradient[:, 0] > 0).all() and (gradient[:, 1] < 0).all()


def test_the_reference_is_the_role_that_it_names() -> None:
    assert IPO(reference="old").needs == {OLD_LOGP}
