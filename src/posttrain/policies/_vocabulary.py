"""The embedding, and the logits of a large vocabulary, whose gradients go straight to where they are summed.

By itself torch makes a matrix of gradients for each use of the embedding, holds that of the logits until the layers are
done, and adds the two: hundreds of megabytes beside the one where the sum is kept.

T tokens, D width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from posttrain.kernels import products

LARGE: Final = 1 << 22
"""Numbers of a matrix from which it is faster. Below, sums are those of torch to the bit."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """Where the gradients of a matrix are summed, in float32."""

    of: Tensor
    """The matrix, or its master: its ``grad``."""

    def add_rows(self, token_ids_T: Tensor, grad_TD: Tensor) -> None:
        """Of an embedding."""
        if self.of.grad is None:
            self.of.grad = torch.zeros_like(self.of)
        self.of.grad.index_add_(0, token_ids_T, grad_TD.to(self.of.dtype))

    def add_product(self, grad_TV: Tensor, hidden_TD: Tensor) -> None:
        """Of logits."""
        if products.covered(grad_TV, hidden_TD):
            self.of.grad = products.product(grad_TV.t(), hidden_TD, added_to=self.of.grad)
        elif self.of.grad is None:
            self.of.grad = (grad_TV.t() @ hidden_TD).to(self.of.dtype)
        else:
            self.of.grad.addmm_(grad_TV.t().to(self.of.dtype), hidden_TD.to(self.of.dtype))


def embedded(token_ids_T: Tensor, weight_VD: Tensor) -> Tensor:
    """[T, D] rows of a matrix."""
    if (total := _sum_of(weight_VD)) is None:
        return F.embedding(token_ids_T, weight_VD)
    rows: Tensor = _Embedded.apply(token_ids_T, weight_VD, total)  # type: ignore[no-untyped-call]
    return rows


def logits(hidden_TD: Tensor, weight_VD: Tensor) -> Tensor:
    """[T, V] products with the rows of a matrix."""
    if (total := _sum_of(weight_VD)) is not None:
        made: Tensor = _Logits.apply(hidden_TD, weight_VD, total)  # type: ignore[no-untyped-call]
        return made
    trained = torch.is_grad_enabled() and (hidden_TD.requires_grad or weight_VD.requires_grad)
    return F.linear(hidden_TD, weight_VD) if trained else _linear(hidden_TD, weight_VD)


def _sum_of(weight: Tensor) -> _Sum | None:
    """Where the gradients of a large matrix are summed that is trained as it is, or has a master."""
    trained = torch.is_grad_enabled() and weight.requires_grad and weight.is_leaf
    if not (trained and weight.numel() >= LARGE and weight.device.type == "cpu"):
        return None
    found = weight if weight.dtype == torch.float32 else products.master_of(weight)
    return None if found is None else _Sum(found)


def _linear(hidden: Tensor, weight: Tensor) -> Tensor:
    """In half precision torch is as fast, and rounds what it makes at once."""
    if weight.dtype == torch.float32 and weight.numel() >= LARGE and products.covered(hidden, weight):
        return products.product(hidden, weight.t())
    return F.linear(hidden, weight)


class _Embedded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token_ids: Tensor, weight: Tensor, total: _Sum) -> Tensor:
        ctx.save_for_backward(token_ids)
        ctx.total = total
        return F.embedding(token_ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None, None]:
        ctx.total.add_rows(*ctx.saved_tensors, grad)
        return None, None, None


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, total: _Sum) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        ctx.total = total
        return _linear(hidden, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        hidden, weight = ctx.saved_tensors
        ctx.total.add_product(grad, hidden)
        if weight.dtype == torch.float32 and products.covered(grad, weight):
            return products.product(grad, weight), None, None
        return grad @ weight, None, None
