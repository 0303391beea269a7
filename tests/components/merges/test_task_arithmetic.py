"""Task arithmetic: by hand, linear in alpha, exact at both ends."""

import pytest
import torch

from posttrain.components.merges.task_arithmetic import TaskArithmetic
from posttrain.errors import UserError

BASE = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
A = torch.tensor([2.0, -2.0, 0.0], dtype=torch.float64)
B = torch.tensor([1.0, 0.0, 0.5], dtype=torch.float64)


def test_by_hand() -> None:
    assert TaskArithmetic(alpha=0.5)("w", (BASE, A), {}).tolist() == [1.5, -2.0, 0.25]
    assert TaskArithmetic(alpha=0.5)("w", (BASE, A, B), {}).tolist() == [1.5, -1.0, 0.25]


def test_linear_in_alpha() -> None:
    low, middle, high = (TaskArithmetic(alpha=a)("w", (BASE, A, B), {}) for a in (-1.0, 0.5, 2.0))
    assert torch.allclose(middle, (low + high) / 2, rtol=1e-14)


def test_the_ends_are_the_models_to_the_bit() -> None:
    """Also where the difference of two float32 numbers is no float64."""
    base, other = (torch.tensor([x], dtype=torch.float32).double() for x in (1e30, 1.1e-30))
    assert torch.equal(TaskArithmetic(alpha=0.0)("w", (base, other), {}), base)
    assert torch.equal(TaskArithmetic(alpha=1.0)("w", (base, other), {}), other)


def test_one_model_is_refused() -> None:
    with pytest.raises(UserError, match="name at least two"):
        TaskArithmetic().check(1)
