import pytest
import torch

from posttrain.components.penalties.velocity import Velocity
from posttrain.signals import VELOCITY, Signal
from tests.builders import having, random_tokens, tokens


def test_by_hand() -> None:
    own = torch.tensor([[1.0, 2.0], [0.0, 0.0]], requires_grad=True)
    reference = torch.tensor([[0.0, 0.0], [0.0, 2.0]])
    these = having(tokens([[-1.0, -1.0]]), {VELOCITY: own, Signal("velocity", of="reference"): reference})
    term = Velocity(coefficient=0.1).in_loss(these)
    assert term is not None
    assert term.loss_T.tolist() == pytest.approx([0.25, 0.2])
    assert term.metrics["distance"].tolist() == pytest.approx([2.5, 2.0])
    term.loss_T.sum().backward()
    assert own.grad is not None and own.grad.tolist() == [pytest.approx([0.1, 0.2]), pytest.approx([0.0, -0.2])]


def test_it_needs_both_velocities() -> None:
    member = Velocity(role="average")
    assert member.needs == {VELOCITY, Signal("velocity", of="average")}
    assert member.in_loss(random_tokens(needs=member.needs)) is not None
