"""The term of the loss; the divergence itself is tested with the policies' signals."""

import pytest
import torch

from posttrain.components.penalties.exact_kl import ExactKL
from posttrain.signals import Signal
from tests.builders import gradients, having, random_tokens, tokens

FORWARD, REVERSE = Signal("forward_kl", of="base"), Signal("reverse_kl", of="base")


def test_the_divergence_that_is_asked_for_times_the_coefficient() -> None:
    these = having(
        tokens([[-1.0, -1.0]]),
        {
            FORWARD: torch.tensor([0.5, 2.0]),
            REVERSE: torch.tensor([0.25, 1.0]),
            Signal("forward_kl", of="reference"): torch.tensor([9.0, 9.0]),
        },
    )
    forward, reverse = (ExactKL(coefficient=0.1, role="base", direction=d) for d in ("forward", "reverse"))  # type: ignore[arg-type]
    assert forward.needs == {FORWARD} and reverse.needs == {REVERSE}
    assert forward.in_loss(these).loss_T.tolist() == pytest.approx([0.05, 0.2])
    assert forward.in_loss(these).metrics["nats"].tolist() == [0.5, 2.0]
    assert reverse.in_loss(these).loss_T.tolist() == pytest.approx([0.025, 0.1])


def test_it_is_differentiated() -> None:
    these = random_tokens(needs={Signal("forward_kl", of="reference")})
    found = gradients(ExactKL(coefficient=0.3).in_loss(these).loss_T.sum(), these)
    assert found[Signal("forward_kl", of="reference")].tolist() == pytest.approx([0.3] * len(these.logp_T))
    assert not found["logp_T"].any()
