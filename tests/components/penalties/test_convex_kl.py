import pytest
import torch

from posttrain.components.penalties.convex_kl import ConvexKL
from posttrain.signals import Signal
from tests.builders import batch, gradients, having, tokens

BASE, PREVIOUS = Signal("reverse_kl", of="reference"), Signal("reverse_kl", of="previous")


def share(steps: int) -> float:
    return ConvexKL().at({"steps": steps}).share


def test_the_share_by_step() -> None:
    """1 up to step 50, a tenth less in every started block of ten, half from step 91 on."""
    assert [share(t) for t in (0, 1, 50, 51, 60, 61, 70, 71, 81, 90, 91, 500)] == pytest.approx(
        [1, 1, 1, 0.9, 0.9, 0.8, 0.8, 0.7, 0.6, 0.6, 0.5, 0.5]
    )
    penalty = ConvexKL()
    state = penalty.start()
    for _ in range(51):
        state = penalty.observe(state, batch([[1.0, 0.0]]))
    assert penalty.at(state).share == pytest.approx(0.9), "the loss of step 51 has the first lower share"


def test_hand_worked() -> None:
    these = having(
        tokens([[-1.0, -1.0]]),
        {
            BASE: torch.tensor([0.5, 2.0]).requires_grad_(),
            PREVIOUS: torch.tensor([0.25, 0.0]).requires_grad_(),
        },
    )
    penalty = ConvexKL(coefficient=0.1, share=0.6)
    assert penalty.needs == {BASE, PREVIOUS}
    loss_T = penalty.in_loss(these).loss_T
    assert loss_T.tolist() == pytest.approx([0.1 * (0.3 + 0.1), 0.12])
    found = gradients(loss_T.sum(), these)
    assert found[BASE].tolist() == pytest.approx([0.06, 0.06]) and found[PREVIOUS].tolist() == pytest.approx([0.04] * 2)


def test_a_share_below_the_last_one_stays() -> None:
    assert ConvexKL(share=0.3).at({"steps": 500}).share == 0.3
