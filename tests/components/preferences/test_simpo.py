"""SimPO: means over tokens, the margin, and the gradient."""

import math

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from posttrain.components.preferences import Pairs
from posttrain.components.preferences.dpo import DPO
from posttrain.components.preferences.simpo import SimPO

LOGP = [[-3.0, -6.0], [-4.0, -1.0]]
LENGTHS = [[2, 4], [8, 1]]
"""Mean log-probabilities of -1.5 and -1.5, then of -0.5 and -1."""


def pairs(logp: list[list[float]] | Tensor = LOGP, lengths: list[list[int]] = LENGTHS) -> Pairs:
    return Pairs(logp_P2=torch.as_tensor(logp, dtype=torch.float64), length_P2=torch.tensor(lengths))


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_the_loss_by_hand() -> None:
    """Margins of 0 and 2 * 0.5, each less 0.4."""
    result = SimPO(beta=2.0, gamma=0.4)(pairs())
    assert result.loss_P.tolist() == pytest.approx([-math.log(sigmoid(-0.4)), -math.log(sigmoid(0.6))])
    assert {name: values.tolist() for name, values in result.metrics.items()} == {
        "pair_accuracy": [0.0, 1.0],
        "pair_margin": [0.0, 1.0],
        "chosen_reward": [-3.0, -1.0],
        "rejected_reward": [-3.0, -2.0],
        "chosen_logp": [-3.0, -4.0],
        "rejected_logp": [-6.0, -1.0],
    }


def test_label_smoothing_by_hand() -> None:
    found = SimPO(beta=2.0, gamma=0.4, label_smoothing=0.1)(pairs()).loss_P.tolist()
    assert found == pytest.approx([-0.9 * math.log(sigmoid(m)) - 0.1 * math.log(sigmoid(-m)) for m in (-0.4, 0.6)])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_finite_differences(smoothing: float) -> None:
    loss = SimPO(beta=1.5, gamma=0.5, label_smoothing=smoothing)
    assert torch.autograd.gradcheck(lambda x: loss(pairs(x)).loss_P, torch.tensor(LOGP).double().requires_grad_())


def test_with_one_token_and_no_margin_it_is_dpo_without_a_reference() -> None:
    ones = [[1, 1], [1, 1]]
    ours, theirs = SimPO(beta=0.3, gamma=0.0)(pairs(lengths=ones)), DPO(beta=0.3, reference=None)(pairs(lengths=ones))
    assert ours.loss_P.tolist() == theirs.loss_P.tolist()


@pytest.mark.parametrize("wrong", [{"beta": 0.0}, {"gamma": -0.1}, {"label_smoothing": 0.5}])
def test_wrong_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        SimPO(**wrong)  # type: ignore[arg-type]
