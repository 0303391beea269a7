"""Sens-Merging: coefficients by hand."""

import math

import pytest
import torch

from posttrain.components.merges.sens import Sens
from posttrain.components.merges.task_arithmetic import TaskArithmetic


def test_coefficients_by_hand() -> None:
    """Sensitivities 1 and 3 are 0.5 and 1.5 of their mean; at T = 0.5 the softmax is of 1 and 3."""
    low, high = Sens(temperature=0.5).coefficients({"a": 1.0, "b": 3.0}).values()
    assert low == pytest.approx(2 / (1 + math.exp(2))) and high == pytest.approx(2 / (1 + math.exp(-2)))
    assert Sens().coefficients({"a": 0.0, "b": 0.0}) == {"a": 1.0, "b": 1.0}


def test_a_high_temperature_is_task_arithmetic() -> None:
    base, other = torch.zeros(2, dtype=torch.float64), torch.tensor([1.0, -2.0], dtype=torch.float64)
    method = Sens(alpha=0.4, temperature=1e9)
    survey = {"coefficients": [method.coefficients({"a": 1.0, "b": 9.0})]}
    assert torch.allclose(method("b", (base, other), survey), TaskArithmetic(alpha=0.4)("b", (base, other), {}))
