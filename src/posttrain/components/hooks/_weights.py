"""Going over the parameters of two models side by side."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from posttrain.components.hooks import Seat
from posttrain.errors import UserError

if TYPE_CHECKING:
    from torch.nn import Parameter


def side_by_side(first: Seat, second: Seat) -> "Iterator[tuple[Parameter, Parameter]]":
    """Parameters of the same name. Raises `UserError` for models that are not of one shape."""
    ours, theirs = (dict(seat.model.named_parameters()) for seat in (first, second))
    shapes = [{name: tuple(p.shape) for name, p in parameters.items()} for parameters in (ours, theirs)]
    if shapes[0] != shapes[1]:
        unlike = min(n for n in shapes[0].keys() | shapes[1].keys() if shapes[0].get(n) != shapes[1].get(n))
        raise UserError(
            f"the models in the roles '{first.role}' and '{second.role}' are not of one shape: they differ in "
            f"'{unlike}'. Give both the same source, head and lora (a copy has the adapters of its source merged)"
        )
    for name, parameter in ours.items():
        yield parameter, theirs[name]
