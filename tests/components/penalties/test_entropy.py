import pytest
import torch

from posttrain.components.penalties.entropy import Entropy
from posttrain.signals import ENTROPY
from tests.builders import gradients, tokens


@pytest.mark.parametrize("coefficient", [0.5, -0.5])
def test_a_bonus_lowers_the_loss(coefficient: float) -> None:
    these = tokens([[-1.0, -2.0]], entropy=[[0.6, 2.0]])
    penalty = Entropy(coefficient=coefficient)
    term = penalty.in_loss(these)
    assert penalty.needs == {ENTROPY}
    assert term is not None
    assert term.loss_T.tolist() == pytest.approx([-0.6 * coefficient, -2.0 * coefficient])
    found = gradients(term.loss_T.sum(), these)
    assert found[ENTROPY].tolist() == [-coefficient] * 2
    assert not found["logp_T"].any()


def test_descent_flattens_a_distribution() -> None:
    logits = torch.tensor([2.0, 0.0, -1.0], dtype=torch.float64, requires_grad=True)

    def entropy() -> torch.Tensor:
        logp = logits.log_softmax(0)
        return -(logp.exp() * logp).sum()

    before = entropy().item()
    for _ in range(50):
        slope = torch.autograd.grad(entropy(), logits)[0]
        these = tokens([[-1.0]], entropy=[[entropy().item()]])
        term = Entropy(coefficient=1.0).in_loss(these)
        assert term is not None
        outer = gradients(term.loss_T.sum(), these)[ENTROPY]
        with torch.no_grad():
            logits -= 0.5 * outer * slope
    assert entropy().item() > before + 0.1
