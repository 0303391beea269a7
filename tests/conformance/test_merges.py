"""Laws of every rule of merging."""

import pytest
import torch

from posttrain.components.merges import Merge, Whole
from tests.conformance._members import members

every_member = pytest.mark.parametrize("member", members(Merge))


def tensors(count: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(count)]


def merged_by(member: Merge, given: list[torch.Tensor]) -> torch.Tensor:
    """What a member makes of models that have one parameter, a linear layer's weight."""
    name = "layer.weight"
    whole = Whole(
        tensors=lambda: iter([(name, given)]),
        inputs=lambda: {name: torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)},
        sensitivities=lambda: [{name: 1.0}] * (len(given) - 1),
    )
    return member(name, given, member.survey(whole))


@every_member
def test_equal_models_give_the_same_again(member: Merge) -> None:
    [one] = tensors(1)
    merged = merged_by(member, [one, one.clone()])
    assert merged.dtype == one.dtype and torch.allclose(merged, one, rtol=1e-12, atol=0)


@every_member
def test_nothing_is_written(member: Merge) -> None:
    given = tensors(2)
    before = [tensor.clone() for tensor in given]
    merged = merged_by(member, given)
    merged.zero_()
    assert all(torch.equal(tensor, old) for tensor, old in zip(given, before, strict=True))


@every_member
def test_coefficient_zero_is_the_first_model(member: Merge) -> None:
    given = tensors(2)
    assert torch.equal(merged_by(member.at(0.0), given), given[0])


@every_member
def test_deterministic(member: Merge) -> None:
    assert torch.equal(merged_by(member, tensors(2)), merged_by(member, tensors(2)))
