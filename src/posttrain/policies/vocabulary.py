"""The embedding, and the logits of a large vocabulary, whose gradients go straight to where they are summed.

By itself torch makes a matrix of gradients for each use of the embedding, holds that of the logits until the layers are
done, and adds the two: hundreds of megabytes beside the one where the sum is kept. In half precision it also rounds
each of them.

T tokens, D width, V vocabulary.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from posttrain.kernels import memory, products
from posttrain.kernels.rooms import room_in
from posttrain.policies._memory import runs_again

LARGE: Final = 1 << 22
"""Numbers of a matrix from which it is faster. Below, sums are those of torch to the bit."""
BLOCK: Final = 1 << 18
"""Numbers that are rounded and added at a time: they stay in a core's cache."""


@dataclass
class Total:
    """Where the gradient of a weight is summed over the slices of an update."""

    sum_VD: Tensor | None
    dtype: torch.dtype
    room_VD: Tensor | None = None
    """Where the first is written, if there is memory for it."""

    def add(self, sum_VD: Tensor, dtype: torch.dtype) -> bool:
        """Add the sum of a slice, rounded to a type; whether its memory is not needed any more."""
        rows = max(1, BLOCK // sum_VD.shape[1])
        if self.sum_VD is None:
            self.sum_VD = sum_VD.to(dtype).to(self.dtype)
            return self.sum_VD is not sum_VD
        for own, into in zip(torch.split(sum_VD, rows), torch.split(self.sum_VD, rows), strict=True):
            into.add_(own.to(dtype).to(self.dtype))
        return True


@dataclass
class _Rows:
    """Rows of a total that the embedding adds to as well, after the logits."""

    id_U: Tensor
    before_UD: Tensor | None
    """What was there before this slice."""
    sum_UD: Tensor
    """What the slice adds."""


@dataclass
class _Slice:
    """What one slice adds to the gradient of a weight."""

    weight: Tensor
    total: Total | None = None
    sum_VD: Tensor | None = None
    embedded: list[Tensor] = field(default_factory=list)
    """Ids of the tokens whose rows it reads."""
    uses: int = 0
    """How often logits are made of it."""
    rows: _Rows | None = None

    @property
    def apart(self) -> bool:
        """Whether the sum is not the weight's ``grad``."""
        return self.total is not None or self.weight.dtype != torch.float32

    @property
    def so_far_VD(self) -> Tensor | None:
        """[V, D] the sum."""
        return self.sum_VD if self.apart else self.weight.grad

    def keep(self, sum_VD: Tensor) -> None:
        """What it is now."""
        if self.apart:
            self.sum_VD = sum_VD
        else:
            self.weight.grad = sum_VD

    def is_whole(self, grad_TV: Tensor, hidden_TD: Tensor) -> bool:
        """Whether the logits of a single product are all that is added beside the rows of the embedding."""
        there = self.total is not None and self.total.dtype == torch.float32 and self.sum_VD is None
        return there and self.uses == 1 and self.rows is None and products.covered(grad_TV, hidden_TD)

    def add_whole(self, grad_TV: Tensor, hidden_TD: Tensor) -> None:
        """Add the gradient by the logits to the total at once. Rows of the embedding are kept apart, and computed a
        second time: they are rounded when it has added to them.
        """
        assert self.total is not None, "callers check first"
        before_VD = self.total.sum_VD
        id_U = torch.unique(torch.cat([ids.reshape(-1) for ids in self.embedded] or [grad_TV.new_empty(0).long()]))
        before_UD = None if before_VD is None else before_VD[id_U]
        self.total.sum_VD = products.product(
            grad_TV.t(), hidden_TD, added_to=before_VD, into=self.total.room_VD, rounded=True
        )
        self.rows = _Rows(id_U, before_UD, products.product(grad_TV[:, id_U].t(), hidden_TD))

    def give_rows(self) -> None:
        """Write the rows of the embedding to the total."""
        if self.rows is None or self.total is None or self.total.sum_VD is None:
            return
        rounded_UD = self.rows.sum_UD.to(self.weight.dtype).float()
        before_UD = self.rows.before_UD
        self.total.sum_VD[self.rows.id_U] = rounded_UD if before_UD is None else before_UD + rounded_UD
        self.rows = None


class Sums:
    """The gradients of large vocabularies in one slice: float32 sums of those in half precision, whose ``grad`` would
    round each part, and of all that have a total.

    `spare` are tensors that nobody needs any more: the next sum is written into one of them. Without them none is kept.
    """

    def __init__(self, spare: list[Tensor] | None = None) -> None:
        self._of: dict[int, _Slice] = {}
        self.spare = spare

    def room(self, weight: Tensor) -> Tensor | None:
        """Takes a spare tensor for a sum of the shape of a weight; None where there is none."""
        spare = self.spare or []
        place = next((i for i, one in enumerate(spare) if one.shape == weight.shape), None)
        return None if place is None else spare.pop(place)

    def collect(self, weight: Tensor, total: Total) -> None:
        """From now on, the gradient of a weight is added to a total: (s0) + (a1 + b1), not (s0 + a1) + b1."""
        self._of[id(weight)] = _Slice(weight, total)

    def of(self, weight: Tensor) -> _Slice:
        """That of a weight."""
        return self._of.setdefault(id(weight), _Slice(weight))

    @torch.no_grad()
    def give(self, weight: Tensor) -> None:
        """Round the sum of a weight, if there is one, and add it to its total, or else to its ``grad``."""
        own = self._of.pop(id(weight), None)
        if own is None:
            return
        own.give_rows()
        if own.sum_VD is None:
            return
        if own.total is None:
            rounded_VD = own.sum_VD.to(weight.dtype)
            weight.grad = rounded_VD if weight.grad is None else weight.grad.add_(rounded_VD)
            return
        if own.total.add(own.sum_VD, weight.dtype):
            keep_spare(own.sum_VD, self.spare)

    def give_all(self) -> None:
        """Give all that there are."""
        for own in list(self._of.values()):
            self.give(own.weight)


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


class _Kept:
    """Memory of the last logits, which the next ones are written into when nobody refers to them any more."""

    def __init__(self) -> None:
        self._block: memory.Block | None = None

    def room_for(self, rows: int, columns: int, dtype: torch.dtype) -> Tensor | None:
        """[rows, columns] with whatever numbers are there; None where they are in use, or small."""
        size = rows * columns * dtype.itemsize
        if size < memory.LARGE:
            return None
        if self._block is None or self._block.size < size:
            self._block = None  # before more is asked for
            self._block = memory.Block(size)
        room = room_in(self._block, size)
        return None if room is None else room.take((rows, columns), dtype)


_KEPT: Final[ContextVar[_Kept | None]] = ContextVar("kept", default=None)


@contextmanager
def keeping_logits() -> Iterator[None]:
    """Inside, the memory of large logits is kept for those of the next micro-batch: it is part of the peak of each, and
    new memory comes from the system page by page, zeroed.
    """
    token = _KEPT.set(_Kept())
    try:
        yield
    finally:
        _KEPT.reset(token)


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
    return _logits(hidden_TD, weight_VD) if _is_large(weight_VD) and not trained else F.linear(hidden_TD, weight_VD)


def _logits(hidden_TD: Tensor, weight_VD: Tensor) -> Tensor:
    """Of what is not differentiated. In half precision torch is faster where there is a matrix unit."""
    left_to_torch = weight_VD.dtype != torch.float32 and products.has_matrix_unit()
    if left_to_torch or not products.covered(hidden_TD, weight_VD):
        return F.linear(hidden_TD, weight_VD)
    kept = _KEPT.get()
    into = None if kept is None else kept.room_for(len(hidden_TD), len(weight_VD), hidden_TD.dtype)
    return products.matmul(hidden_TD, weight_VD.t(), into=into)


def _is_large(weight: Tensor) -> bool:
    return weight.numel() >= LARGE and weight.device.type == "cpu"


def _goes_straight(weight: Tensor) -> bool:
    """Whether a matrix is a large one that is trained as it is, and there is a float32 sum for its gradient."""
    trained = torch.is_grad_enabled() and weight.requires_grad and weight.is_leaf and _is_large(weight)
    half = weight.dtype in (torch.bfloat16, torch.float16)
    return trained and (weight.dtype == torch.float32 or (half and _OPEN.get() is not None))


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
        ctx.slice = _slice_of(weight)
        ctx.slice.embedded.append(token_ids)
        return F.embedding(token_ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, None]:
        token_ids, weight = ctx.saved_tensors
        rows = ctx.slice.rows
        if rows is not None:
            assert bool(torch.isin(token_ids, rows.id_U).all()), "what is embedded is known before the logits"
            rows.sum_UD.index_add_(0, torch.searchsorted(rows.id_U, token_ids), grad.float())
            return None, None
        before = ctx.slice.so_far_VD
        total = torch.zeros_like(weight, dtype=torch.float32) if before is None else before
        ctx.slice.keep(total.index_add_(0, token_ids, grad.float()))
        return None, None


class _Logits(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, weight)
        ctx.sums, ctx.slice = _OPEN.get(), _slice_of(weight)
        ctx.slice.uses += 1 + runs_again()  # one of several
        return _logits(hidden, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        hidden, weight = ctx.saved_tensors
        if ctx.slice.is_whole(grad, hidden):
            ctx.slice.add_whole(grad, hidden)
        else:
            before = ctx.slice.so_far_VD
            room = ctx.sums.room(weight) if before is None and ctx.sums is not None else None
            ctx.slice.keep(_product(grad.t(), hidden, before, room))
        return _product(grad, weight).to(hidden.dtype), None


def _slice_of(weight: Tensor) -> _Slice:
    """What is added to the gradient of a weight in the open slice, or to its ``grad``."""
    sums = _OPEN.get()
    return _Slice(weight) if sums is None else sums.of(weight)
