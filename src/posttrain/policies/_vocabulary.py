"""The embedding, and the logits of a large vocabulary, whose gradients go straight to where they are summed.

By itself torch makes a matrix of gradients for each use of the embedding, holds that of the logits until the layers are
done, and adds the two: hundreds of megabytes beside the one where the sum is kept.

T tokens, D width, V vocabulary.
"""

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from posttrain.kernels import products

LARGE: Final = 1 << 22
"""Numbers of a matrix from which it is faster. Below, sums are those of torch to the bit."""


def embedded(token_ids_T: Tensor, weight_VD: Tensor) -> Tensor:
    """[T, D] rows of a matrix."""
    if not _goes_straight(weight_VD):
        return F.embedding(token_ids_T, weight_VD)
    rows: Tensor = _Embedded.apply(token_ids_T, weight_VD)  # type: ignore[no-untyped-call]
    return rows


def logits(hidden_TD: Tensor, weight_VD: Tensor) -> Tensor:
    """[T, V] products with the rows of a matrix."""
    if _goes_straight(weight_VD):
        made: Tensor = _Logits.apply(hidden_TD, weight_VD)  # type: ignore[no-untyped-call]
        return made
    trained = torch.is_grad_enabled() and (hidden_TD.requires_grad or weight_VD.requires_grad)
    alone = not trained and _is_large(weight_VD)
    return _product(hidden_TD, weight_VD.t()) if alone else F.linear(hidden_TD, weight_VD)


def _is_large(weight: Tensor) -> bool:
    """In half precision torch is as fast, and rounds what it makes at once."""
    return weight.numel() >= LARGE and weight.dtype == torch.float32 and weight.device.type == "cpu"


def _goes_straight(weight: Tensor) -> bool:
    """Whether a matrix is a large one that is trained as it is; one in half precision has a master that sums."""
    return torch.is_grad_enabled() and weight.requires_grad and weight.is_leaf and _is_large(weight)


def _product(a: Tensor, b: Tensor, added_to: Tensor | None = None) -> Tensor:
    if products.covered(a, b):
        return products.product(a, b, added_to=added_to)
    return a @ b if added_to is None else added_to.addmm_(a, b)


class _Embedded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token_ids: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(token_ids, weight)
        return F.embedding(token_ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        token_ids, weight = ctx.saved_tensors
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        weight.grad.index_add_(0, token_ids, grad)
        return None, None


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        return _product(hidden, weight.t())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        hidden, weight = ctx.saved_tensors
        weight.grad = _product(grad.t(), hidden, weight.grad)
        return _product(grad, weight), None
