import math

import pytest
import torch

from posttrain.components.corrections.truncated import Truncated
from tests.builders import tokens


def factors(correction: Truncated, old: list[float], behavior: list[float]) -> list[float]:
    factor_T = correction(tokens([old], old_logp=[old], behavior_logp=[behavior]))
    assert isinstance(factor_T, torch.Tensor)
    return factor_T.tolist()


def test_worked_example() -> None:
    old = [-1.0 + math.log(r) for r in (0.5, 1.0, 1.9, 2.5)]
    assert factors(Truncated(), old, [-1.0] * 4) == pytest.approx([0.5, 1.0, 1.9, 2.0])


def test_cap_below_one() -> None:
    assert factors(Truncated(cap=0.5), [-1.0, -2.0], [-1.0, -1.0]) == pytest.approx([0.5, math.exp(-1)])


def test_tokens_that_nobody_sampled_count_once() -> None:
    assert factors(Truncated(), [-1.0, -1.0], [math.nan, -1.5]) == pytest.approx([1.0, math.exp(0.5)])
