"""The update between two models of one shape, tensor by tensor.

A weight counts once under its name; buffers are not weights; of tied weights there is one. Differences are taken in a
given type: both weights are rounded to it first, so that in bfloat16 an update that is smaller than the spacing of
its numbers (2^-8 of the weight) may vanish.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from posttrain.components.diagnostics import Subject
from posttrain.errors import UserError
from posttrain.policies.folder import write_tensors
from posttrain.policies.language_model import root_of


def weights_of(subject: Subject) -> dict[str, nn.Parameter]:
    """Every parameter of a model by the name that it has in the model's files."""
    return dict(root_of(subject.load().body).named_parameters())


def updates(before: Subject, after: Subject) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Name and both weights of every parameter, in float32. Raises `UserError` for models that differ in shape."""
    old, new = weights_of(before), weights_of(after)
    for name in sorted(old.keys() ^ new.keys()):
        has, lacks = (before, after) if name in old else (after, before)
        raise UserError(f"{has.name} has a tensor '{name}' and {lacks.name} has none; compare models of one shape")
    for name, tensor in old.items():
        if tensor.shape != new[name].shape:
            raise UserError(
                f"tensor '{name}' is {list(tensor.shape)} in {before.name} and {list(new[name].shape)} in "
                f"{after.name}; compare models of one shape"
            )
        yield name, tensor.detach(), new[name].detach()


def difference(before: Tensor, after: Tensor, dtype: torch.dtype) -> Tensor:
    """After - before, of both as they are in a type, computed in that type."""
    return after.to(dtype) - before.to(dtype)


@dataclass(frozen=True, kw_only=True)
class TensorUpdate:
    """Statistics of the update of one tensor."""

    name: str
    shape: list[int]
    entries: int
    zeros: int
    """Entries that did not change at all."""
    within: int
    """Entries that changed by no more than the tolerance."""
    square: float
    """Sum of the squared changes."""
    rank_ratio: float | None
    """Numerical rank over the shorter side; None for vectors and norms."""


def measure(name: str, delta: Tensor, tolerance: float, *, rank: bool) -> TensorUpdate:
    """Count the entries of an update that are zero, or nearly, and find its rank."""
    ranked = rank and delta.dim() >= 2 and "layernorm" not in name
    return TensorUpdate(
        name=name,
        shape=list(delta.shape),
        entries=delta.numel(),
        zeros=int((delta == 0).sum()),
        within=int((delta.abs() <= tolerance).sum()),
        square=float(delta.double().square().sum()),
        rank_ratio=rank_ratio(delta) if ranked else None,
    )


def rank_ratio(delta: Tensor) -> float:
    """Numerical rank of a matrix in float32 over its shorter side; more than two axes are taken as rows of the first.

    Singular values up to max(m, n) eps sigma_max count as zero.
    """
    matrix = delta.float().flatten(1)
    return int(torch.linalg.matrix_rank(matrix)) / min(matrix.shape)


def write_mask(path: Path, masks: dict[str, Tensor]) -> None:
    """Write masks (1 where a weight moved) as uint8 tensors by name."""
    if path.suffix != ".safetensors" or not path.absolute().parent.is_dir():
        raise UserError(f"the mask cannot be written to '{path}'; name a .safetensors file in a folder that is there")
    write_tensors(path, {name: mask.to(torch.uint8) for name, mask in masks.items()})
