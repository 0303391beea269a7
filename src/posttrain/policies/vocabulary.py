"""The embedding, and the logits of a large vocabulary, whose gradients go straight to where they are summed.

By itself torch makes a matrix of gradients for each use of the embedding, holds that of the logits until the layers are
done, and adds the two: hundreds of megabytes beside the one where the sum is kept. In half precision it also rounds
each of them.

T tokens, D width, V vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from posttrain.kernels import products

LARGE: Final = 1 << 22
"""Numbers of a matrix from which it is faster. Below, sums are those of torch to the bit."""
BLOCK: Final = 1 << 18
"""Numbers that are rounded and added at a time: they stay in a core's cache."""


class Sums:
    """Float32 sums of the gradients of large vocabularies in half precision, whose ``grad`` would round each part.

    `spare` are tensors that nobody needs any more: the next sum is written into one of them. Without them none is kept.
    """

    def __init__(self, spare: list[Tensor] | None = None) -> None:
        self._of: dict[int, tuple[Tensor, Tensor]] = {}
        self.spare = spare

    def room(self, weight: Tensor) -> Tensor | None:
        """Takes a spare tensor for a sum of the shape of a weight; None where there is none."""
        spare = self.spare or []
        place = next((i for i, one in enumerate(spare) if one.shape == weight.shape), None)
        return None if place is None else spare.pop(place)

    def get(self, weight: Tensor) -> Tensor | None:
        """[V, D] what there is for a weight."""
        return self._of.get(id(weight), (weight, None))[1]

    def put(self, weight: Tensor, sum_VD: Tensor) -> None:
        """What there is now."""
        self._of[id(weight)] = weight, sum_VD

    @torch.no_grad()
    def give(self, weight: Tensor, master: Tensor | None = None) -> None:
        """Round the sum of a weight, if there is one, and add it to its ``grad``, or to that of its master."""
        _, sum_VD = self._of.pop(id(weight), (weight, None))
        if sum_VD is None:
            return
        if master is None:
            rounded_VD = sum_VD.to(weight.dtype)
            weight.grad = rounded_VD if weight.grad is None else weight.grad.add_(rounded_VD)
            return
        total_VD = sum_VD if master.grad is None else master.grad
        rows = max(1, BLOCK // sum_VD.shape[1])
        for own, into in zip(torch.split(sum_VD, rows), torch.split(total_VD, rows), strict=True):
            rounded = own.to(weight.dtype)
            if master.grad is None:
                into.copy_(rounded)
            else:
                into.add_(rounded.float())
        if master.grad is not None:
            keep_spare(sum_VD, self.spare)
        master.grad = total_VD

    def give_all(self) -> None:
        """Round all sums and add them to the ``grad`` of their weights."""
        for weight, _ in list(self._of.values()):
            self.give(weight)


def keep_spare(sum_VD: Tensor, spare: list[Tensor] | None) -> None:
    """Keep a large float32 sum that nobody needs any more, unless there is one of its shape, or none is kept."""
    if spare is None or sum_VD.numel() < LARGE or sum_VD.dtype != torch.float32:
        return
    if all(one.shape != sum_VD.shape for one in spare):
        spare.append(sum_VD)


_OPEN: Final[ContextVar[Sums | None]] = ContextVar("sums", default=None)


@contextmanager
def rounded_once(spare: list[Tensor] | None = None) -> Iterator[Sums]:
    """Inside, the gradient of a large vocabulary in half precision is summed in float32: those of chunks of logits, and
    of rows of the embedding. At the end of the outermost, what was not given away before is added to ``grad``.
    """
    if (outer := _OPEN.get()) is not None:
        yield outer
        return
    sums = Sums(spare)
    token = _OPEN.set(sums)
    try:
        yield sums
        sums.give_all()
    finally:
        _OPEN.reset(token)


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
    alone = not trained and _is_large(weight_VD) and weight_VD.dtype == torch.float32
    return _product(hidden_TD, weight_VD.t()) if alone else F.linear(hidden_TD, weight_VD)


def _is_large(weight: Tensor) -> bool:
    return weight.numel() >= LARGE and weight.device.type == "cpu"


def _goes_straight(weight: Tensor) -> bool:
    """Whether a matrix is a large one that is trained as it is, and there is a float32 sum for its gradient."""
    trained = torch.is_grad_enabled() and weight.requires_grad and weight.is_leaf and _is_large(weight)
    half = weight.dtype in (torch.bfloat16, torch.float16)
    return trained and (weight.dtype == torch.float32 or (half and _OPEN.get() is not None))


def _sum_of(weight: Tensor, sums: Sums | None) -> Tensor | None:
    return weight.grad if weight.dtype == torch.float32 or sums is None else sums.get(weight)


def _keep(weight: Tensor, sums: Sums | None, sum_VD: Tensor) -> None:
    if weight.dtype == torch.float32 or sums is None:
        weight.grad = sum_VD
    else:
        sums.put(weight, sum_VD)


def _product(a: Tensor, b: Tensor, added_to: Tensor | None = None, into: Tensor | None = None) -> Tensor:
    """``a @ b`` in float32, added to what is given, or written into it."""
    if products.covered(a, b):
        return products.product(a, b, added_to=added_to, into=into)
    if a.dtype == torch.float32:
        return a @ b if added_to is None else added_to.addmm_(a, b)
    return (a @ b).float() if added_to is None else added_to.add_(a @ b)


class _Embedded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, token_ids: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(token_ids, weight)
        ctx.sums = _OPEN.get()
        return F.embedding(token_ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        token_ids, weight = ctx.saved_tensors
        before = _sum_of(weight, ctx.sums)
        total = torch.zeros_like(weight, dtype=torch.float32) if before is None else before
        _keep(weight, ctx.sums, total.index_add_(0, token_ids, grad.float()))
        return None, None


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        ctx.sums = _OPEN.get()
        return _product(hidden, weight.t()) if weight.dtype == torch.float32 else F.linear(hidden, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        hidden, weight = ctx.saved_tensors
        before = _sum_of(weight, ctx.sums)
        room = ctx.sums.room(weight) if before is None and ctx.sums is not None else None
        _keep(weight, ctx.sums, _product(grad.t(), hidden, before, room))
        return _product(grad, weight).to(hidden.dtype), None
