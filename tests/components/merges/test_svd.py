"""SVD: a hand-worked matrix, the library's decomposition, and task arithmetic at full rank."""

import pytest
import torch

from posttrain.components.merges.svd import SVD
from posttrain.components.merges.task_arithmetic import TaskArithmetic


def test_by_hand() -> None:
    """Singular values 3 and 1: half of them keeps 3; a threshold of 2 leaves 1 of it."""
    difference = torch.tensor([[0.0, 3.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    base = torch.ones(3, 2, dtype=torch.float64)
    kept = SVD(share=0.5)("w", (base, base + difference), {}) - base
    assert torch.allclose(kept, torch.tensor([[0.0, 3.0], [0.0, 0.0], [0.0, 0.0]], dtype=torch.float64))
    less = SVD(share=1.0, threshold=2.0)("w", (base, base + difference), {}) - base
    assert torch.allclose(less, torch.tensor([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]], dtype=torch.float64))


@pytest.mark.parametrize("shape", [(7, 4), (4, 7)])
def test_it_is_the_truncated_decomposition(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    base, other = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    left, values, right = torch.linalg.svd(other - base, full_matrices=False)
    expected = base + 0.5 * (left[:, :2] * values[:2]) @ right[:2]
    assert torch.allclose(SVD(share=0.5, alpha=0.5)("w", (base, other), {}), expected, atol=1e-10)
    assert torch.equal(
        SVD(share=1.0, alpha=0.5)("w", (base, other), {}), TaskArithmetic(alpha=0.5)("w", (base, other), {})
    )


def test_a_vector_keeps_its_whole_difference() -> None:
    base, other = torch.zeros(3, dtype=torch.float64), torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    assert torch.equal(SVD(share=0.1)("norm", (base, other), {}), other)
