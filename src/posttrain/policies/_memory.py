"""How much memory training takes beside a model, and layers that are computed twice so as to keep less.

On a CPU a forward pass may keep a gigabyte for the backward pass beside a small model. Weights, gradients and moments
of a large one take more than that, and it gains little from more tokens in a pass: time that is spent once per pass is
a share of the arithmetic that depends on the number of tokens alone.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

ROOM: Final = 1 << 30
"""Bytes that a forward pass keeps at most, beside a model that takes none."""
SHARED: Final = 31
"""It keeps less by ten parts in this many of what weights, gradients and optimizer take."""
LEAST_ROOM: Final = 5 << 25
"""Bytes that it may keep beside a model of any size."""


def state_bytes(module: nn.Module) -> int:
    """Bytes of weights, and of gradients, two moments and masters of those that are trained."""
    return sum(p.nbytes + p.requires_grad * trained_bytes(p.element_size()) * p.numel() for p in module.parameters())


def trained_bytes(width: int) -> int:
    """Bytes of a trained number besides itself: gradient and two moments, and where it has fewer than 4, a master."""
    return 12 if width >= 4 else 16


def room_beside(state: int) -> int:
    """Bytes that a forward pass may keep beside a model whose training takes that many."""
    return max(ROOM - 10 * state // SHARED, LEAST_ROOM)


def recomputed(run: Callable[..., tuple[Tensor, ...]], *given: Tensor | None) -> tuple[Tensor, ...]:
    """``run(*given)``, of which only what is given is kept: the backward pass runs it again, with the same bits.

    Gradients of parameters are added to their ``grad`` then. In torch, checkpointing imports its compiler: 1.3 seconds
    and 70 MB.
    """
    anchor = torch.zeros((), requires_grad=True)  # without an input that has a gradient there is no backward pass
    results: Any = _Recomputed.apply(run, anchor, *given)  # type: ignore[no-untyped-call]
    return tuple(results)


_AGAIN: Final[ContextVar[bool]] = ContextVar("again", default=False)


def runs_again() -> bool:
    """Whether this is computed a second time, in a backward pass."""
    return _AGAIN.get()


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, run: Callable[..., tuple[Tensor, ...]], anchor: Tensor, *given: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.run = run
        ctx.save_for_backward(*given)
        ctx.set_materialize_grads(False)
        return run(*given)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[2:]
        given = [
            None if tensor is None else tensor.detach().requires_grad_(needed)
            for tensor, needed in zip(ctx.saved_tensors, wanted, strict=True)
        ]
        token = _AGAIN.set(True)
        try:
            with torch.enable_grad():
                results = ctx.run(*given)
        finally:
            _AGAIN.reset(token)
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None and r.requires_grad]
        torch.autograd.backward([result for result, _ in pairs], [grad for _, grad in pairs])
        return None, None, *(None if tensor is None else tensor.grad for tensor in given)
