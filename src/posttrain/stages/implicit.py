"""Derivatives through the end of an inner level, by the implicit function theorem, with products in place of matrices.

At theta with D(theta, w) = 0, the derivative of J(theta) in w is -grad J^T H^-1 B, with H = dD/dtheta, B = dD/dw. With

    q = sum over k < terms of step (I + step H)^k grad J

it is q^T B, where H is symmetric and the sum converges: eigenvalues of step H between -2 and 0. A few terms are what as
many inner updates of size `step` pass on. A product H x is a central difference of D.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Vector = Sequence["Tensor"]
"""One tensor for each parameter."""


def dot(a: Vector, b: Vector) -> float:
    """The inner product."""
    return float(sum(float((x.detach().double() * y.detach().double()).sum()) for x, y in zip(a, b, strict=True)))


def curvature_product(
    field: Callable[[], Vector], parameters: "Sequence[Tensor]", direction: Vector, size: float
) -> "list[Tensor]":
    """H x for D as `field` computes it at the present parameters, which are moved by `size` of their norm and restored.

    Zeros for a direction of length 0.
    """
    import torch

    length = dot(direction, direction) ** 0.5
    if not length:
        return [torch.zeros_like(x) for x in direction]
    shift = size * max(dot(parameters, parameters) ** 0.5, size) / length
    kept = [p.detach().clone() for p in parameters]
    ends = []
    for sign in (1.0, -1.0):
        with torch.no_grad():
            for p, before, x in zip(parameters, kept, direction, strict=True):
                p.copy_(before + sign * shift * x)
        ends.append(field())
    with torch.no_grad():
        for p, before in zip(parameters, kept, strict=True):
            p.copy_(before)
    return [(a - b) / (2 * shift) for a, b in zip(*ends, strict=True)]


def passed_on(slope: Vector, product: Callable[[Vector], Vector], *, step: float, terms: int) -> "list[Tensor]":
    """The vector q for the slope of J; `product` gives H x."""
    term = [step * x for x in slope]
    total = list(term)
    for _ in range(terms - 1):
        term = [x + step * y for x, y in zip(term, product(term), strict=True)]
        total = [a + b for a, b in zip(total, term, strict=True)]
    return total
