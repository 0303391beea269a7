"""Pairs the parameters of two models."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from posttrain.components.hooks import RoleState
from posttrain.errors import UserError

if TYPE_CHECKING:
    from torch.nn import Parameter


def paired_parameters(first: RoleState, second: RoleState) -> "Iterator[tuple[Parameter, Parameter]]":
    """Parameters of the same name. Raises `UserError` for models of different shapes."""
    ours, theirs = (dict(state.model.named_parameters()) for state in (first, second))
    shapes = [{name: tuple(p.shape) for name, p in parameters.items()} for parameters in (ours, theirs)]
    if shapes[0] != shapes[1]:
        unlike = min(n for n in shapes[0].keys() | shapes[1].keys() if shapes[0].get(n) != shapes[1].get(n))
        raise UserError(
            f"the models of the roles '{first.role}' and '{second.role}' have different shapes: they differ in "
            f"'{unlike}'. Give both the same source, head and lora (a copy has the adapters of its source merged)"
        )
    for name, parameter in ours.items():
        yield parameter, theirs[name]
