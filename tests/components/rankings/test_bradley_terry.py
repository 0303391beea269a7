"""Bradley-Terry with a margin."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from posttrain.components.rankings.bradley_terry import BradleyTerry

GAP_P = torch.tensor([1.5, -1.0, 0.0], dtype=torch.float64)


def test_the_loss_by_hand() -> None:
    plain = [math.log1p(math.exp(-1.5)), math.log1p(math.exp(1.0)), math.log(2)]
    assert BradleyTerry()(GAP_P, {}).tolist() == pytest.approx(plain)
    apart = [math.log1p(math.exp(-1.0)), math.log1p(math.exp(1.5)), math.log1p(math.exp(0.5))]
    assert BradleyTerry(margin=0.5)(GAP_P, {}).tolist() == pytest.approx(apart)


def test_a_number_of_the_pair_adds_to_the_margin() -> None:
    loss = BradleyTerry(margin=0.5, by="strength", scale=0.25)
    assert loss.reads == {"strength"} and BradleyTerry().reads == frozenset()
    strength_P = torch.tensor([4.0, 2.0, 0.0], dtype=torch.float64)
    expected = [math.log(2), math.log1p(math.exp(2.0)), math.log1p(math.exp(0.5))]
    assert loss(GAP_P, {"strength": strength_P}).tolist() == pytest.approx(expected)


def test_it_is_the_loss_without_a_ranking_to_the_bit() -> None:
    gap_P = torch.from_numpy(np.random.default_rng(0).normal(size=1000).astype(np.float32)) * 5
    assert torch.equal(BradleyTerry()(gap_P, {}), -torch.nn.functional.logsigmoid(gap_P))


def test_a_margin_is_a_shift_of_the_difference() -> None:
    torch.testing.assert_close(BradleyTerry(margin=2.0)(GAP_P + 2.0, {}), BradleyTerry()(GAP_P, {}))


def test_finite_differences() -> None:
    loss = BradleyTerry(margin=0.3, by="margin")
    number_P = torch.tensor([0.2, 1.0, 3.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: loss(x, {"margin": number_P}), GAP_P.clone().requires_grad_())


def test_a_margin_below_zero_is_refused() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 0"):
        BradleyTerry(margin=-1.0)
