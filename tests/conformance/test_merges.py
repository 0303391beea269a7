"""Laws of every rule of merging."""

import pytest
import torch

from posttrain.components.merges import Merge
from tests.conformance._members import members

every_member = pytest.mark.parametrize("member", members(Merge))


def tensors(count: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(count)]


@every_member
def test_equal_models_give_the_same_again(member: Merge) -> None:
    [one] = tensors(1)
    merged = member("layer.weight", [one, one.clone()])
    assert merged.dtype == one.dtype and torch.allclose(merged, one, rtol=1e-12, atol=0)


@every_member
def test_nothing_is_written(member: Merge) -> None:
    given = tensors(2)
    before = [tensor.clone() for tensor in given]
    merged = member("layer.weight", given)
    merged.zero_()
    assert all(torch.equal(tensor, old) for tensor, old in zip(given, before, strict=True))


@every_member
def test_deterministic(member: Merge) -> None:
    assert torch.equal(member("layer.weight", tensors(2)), member("layer.weight", tensors(2)))
