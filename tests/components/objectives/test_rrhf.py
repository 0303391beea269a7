"""RRHF by hand: the hinge of mean log-probabilities, and the best rollout."""

import pytest
import torch

from posttrain.components.objectives.rrhf import RRHF
from posttrain.types import Tokens
from tests.builders import tokens


def given(logp: list[list[float]], advantage: list[float], groups: list[int]) -> Tokens:
    rows = [[a] * len(row) for a, row in zip(advantage, logp, strict=True)]
    return tokens(logp, advantage=rows, group_N=groups)


def test_the_loss_by_hand() -> None:
    """Means -1, -2, -.5 in the order 1, 2, 3 of ranks: hinges 0, .5 (third over first) and 1.5 (third over second)."""
    of = given([[-1.0, -1.0], [-2.0], [-0.5, -0.5]], [1.0, 0.5, 0.0], [0, 0, 0])
    result = RRHF()(of)
    assert result.loss_T.tolist() == pytest.approx([0.5 + 1.5 + 2.0] * 5)
    assert RRHF(imitation=0.0)(of).loss_T.tolist() == pytest.approx([2.0] * 5)
    assert sorted(result.metrics["misordered_pairs"].tolist()) == [0.0, 1.0, 1.0]


def test_a_group_in_order_has_only_its_best() -> None:
    of = given([[-0.5, -0.5], [-2.0], [-3.0]], [1.0, 0.5, 0.0], [0, 0, 0])
    assert RRHF()(of).loss_T.tolist() == pytest.approx([1.0] * 4)
    assert RRHF(imitation=0.0)(of).loss_T.tolist() == [0.0] * 4


def test_a_group_without_an_order_has_no_loss_and_groups_are_apart() -> None:
    of = given([[-1.0], [-3.0], [-4.0], [-2.0]], [0.0, 0.0, 1.0, -1.0], [0, 0, 1, 1])
    assert RRHF()(of).loss_T.tolist() == pytest.approx([0.0, 0.0, 2.0 + 4.0, 2.0 + 4.0])


def test_gradients_are_one_over_the_length() -> None:
    of = given([[-2.0, -2.0], [-1.0, -1.0, -1.0, -1.0]], [1.0, 0.0], [0, 0])
    [gradient] = torch.autograd.grad(RRHF(imitation=0.0)(of).loss_T[0], of.logp_T)
    assert gradient.tolist() == pytest.approx([-0.5, -0.5, 0.25, 0.25, 0.25, 0.25])


def test_finite_differences() -> None:
    of = given([[-1.0, -1.5], [-2.0], [-0.5, -0.7]], [1.0, 0.5, 0.0], [0, 0, 0])

    def loss(logp_T: torch.Tensor) -> torch.Tensor:
        from dataclasses import replace

        return RRHF()(replace(of, logp_T=logp_T)).loss_T

    assert torch.autograd.gradcheck(loss, of.logp_T.detach().clone().requires_grad_())
