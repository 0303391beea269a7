"""Laws of the losses of a pair's scores, for every member on arrival."""

import pytest
import torch
from torch import Tensor

from posttrain.components.rankings import Ranking
from posttrain.components.rankings.bradley_terry import BradleyTerry
from tests.conformance._members import each, members

every_member = pytest.mark.parametrize("loss", [*members(Ranking), BradleyTerry(by="strength")])
GAP_P = torch.linspace(-8, 8, 33, dtype=torch.float64)


def numbers(loss: Ranking, like: Tensor) -> dict[str, Tensor]:
    return {name: torch.ones_like(like).requires_grad_() for name in loss.reads}


@every_member
def test_one_loss_a_pair_of_its_own(loss: Ranking) -> None:
    gap_P, order = GAP_P.clone().requires_grad_(), [3, 1, 20]
    found = loss(gap_P, numbers(loss, gap_P))
    assert found.shape == gap_P.shape and found.requires_grad
    assert torch.equal(loss(gap_P[order], numbers(loss, gap_P[order])), found[order])
    assert loss(gap_P[:0], numbers(loss, gap_P[:0])).shape == (0,)


@every_member
def test_a_larger_difference_never_raises_it(loss: Ranking) -> None:
    assert (loss(GAP_P, numbers(loss, GAP_P)).diff() <= 0).all()


@every_member
@each(gap=[0.0, 100.0, -100.0, 1e5, -1e5])
def test_finite_at_extreme_differences(loss: Ranking, gap: float) -> None:
    gap_P = torch.full((3,), gap, requires_grad=True)
    found = loss(gap_P, numbers(loss, gap_P))
    (gradient_P,) = torch.autograd.grad(found.sum(), gap_P)
    assert found.isfinite().all() and gradient_P.isfinite().all() and (gradient_P <= 0).all()


@every_member
def test_numbers_are_read_and_have_no_gradient(loss: Ranking) -> None:
    gap_P = GAP_P.clone().requires_grad_()
    given = numbers(loss, gap_P)
    loss(gap_P, given).sum().backward()
    assert all(number_P.grad is None for number_P in given.values())
    if loss.reads:
        with pytest.raises(KeyError):
            loss(gap_P, {})
