"""Imitation in latent steps: by hand, and by finite differences."""

import pytest
import torch
from torch import Tensor

from posttrain.components.objectives.compressed import Compressed
from posttrain.signals import LABEL_LOGP, LATENT_ERROR, LATENT_LOGP, Signal
from tests.builders import having, numerical_gradient, tokens


def loss_of(objective: Compressed, label_T: Tensor, latent_T: Tensor, signal: Signal) -> Tensor:
    these = having(tokens([[-1.0, -1.0, -1.0, -1.0]]), {LABEL_LOGP: label_T, signal: latent_T})
    return objective(these).loss_T


def test_two_steps_and_two_tokens_by_hand() -> None:
    label_T = torch.tensor([-1.0, -2.0, -3.0, -4.0], dtype=torch.float64)
    error_T = torch.tensor([0.5, 1.5, 0.0, 0.0], dtype=torch.float64)
    found = loss_of(Compressed(weight=3.0), label_T, error_T, LATENT_ERROR)
    assert found.tolist() == [1.0 + 3.0 * 2.0 * 0.5, 2.0 + 3.0 * 2.0 * 1.5, 3.0, 4.0]
    assert float(found.mean()) == pytest.approx(2.5 + 3.0 * (0.5 + 1.5) / 2)  # a mean over tokens and one over steps
    density = loss_of(Compressed(form="density"), label_T, -error_T, LATENT_LOGP)
    assert density.tolist() == [1.0 + 2.0 * 0.5, 2.0 + 2.0 * 1.5, 3.0, 4.0]


def test_text_alone_is_imitated() -> None:
    label_T = torch.tensor([-1.0, -2.0, -3.0, -4.0], dtype=torch.float64)
    assert loss_of(Compressed(), label_T, torch.zeros_like(label_T), LATENT_ERROR).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_finite_differences() -> None:
    start = torch.tensor([-1.0, -2.0, -0.5, -0.1, 0.4, 1.2, 0.0, 0.0], dtype=torch.float64)

    def loss(x: Tensor) -> Tensor:
        return loss_of(Compressed(), x[:4], torch.cat([x[4:6], x.new_zeros(2)]), LATENT_ERROR).sum()

    leaf = start.clone().requires_grad_()
    (found,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(found, numerical_gradient(loss, start))
