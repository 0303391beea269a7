"""Calls into the compiled kernels, with their gradients. Tensors are contiguous, on the CPU, all of one type.

R rows, D width, H heads, K key heads, d width of a head.
"""

from ctypes import CDLL, c_float, c_int, c_int64, c_void_p
from functools import cache
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from posttrain.kernels._build import built
from posttrain.kernels._layout import PackedLayout

TYPES: Final = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float64: "float64"}
BLOCK: Final = 64
"""Rows whose gradients of a norm's weight are summed together; as in the source."""

_P, _N = c_void_p, c_int64
_ARGUMENTS: Final = {
    "norm_forward": (_N, _N, c_float, _P, _P, _P, _P, _P, _P, c_int),
    "norm_backward": (_N, _N, _P, _P, _P, _P, _P, _P, _P, c_int),
    "rotate_forward": (_N, _N, _N, c_float, _P, _P, _P, _P, _P, _P, c_int),
    "rotate_backward": (_N, _N, _N, _P, _P, _P, _P, _P, _P, _P, _P, c_int),
    "gate_forward": (_N, _N, _P, _P, _P, c_int),
    "gate_backward": (_N, _N, _P, _P, _P, _P, _P, c_int),
    "packed_forward": (_N, *(_P,) * 4, *(_N,) * 3, *(_P,) * 3, c_float, _P, _P, c_int),
    "packed_backward": (_N, *(_P,) * 4, *(_N,) * 3, *(_P,) * 3, c_float, *(_P,) * 6, c_int),
    "signals_forward": (_N, _N, c_float, *(_P,) * 5, c_int),
    "signals_backward": (_N, _N, c_float, *(_P,) * 5, c_int),
    "decode_attention": (*(_N,) * 4, *(_P,) * 6, _N, _P, c_float, _P, c_int),
    "continued_attention": (*(_N,) * 4, *(_P,) * 7, _N, _P, c_float, _P, c_int),
    "choose": (_N, _N, *(_P,) * 6, c_int),
    "uniform": (_N, _P, _P, _P),
    "packed_bytes": (_N, _N),
    "pack": (_N, _N, _P, _P, c_int),
    "decode": (*(_N,) * 7, c_float, c_float, *(_P,) * 5, _N, *(_P,) * 5, _N, _N, *(_P,) * 6, c_int),
    "product": (*(_N,) * 3, *(_P,) * 3, c_int),
    "lay_out": (_N, _P, _P, c_int),
    "gemm": (*(_N,) * 3, *(_P, _N, _N) * 3, c_int),
    "gemm_rounded": (*(_N,) * 3, *(_P, _N, _N) * 2, _P, c_int),
    "before_forward": (*(_N,) * 5, c_float, c_float, *(_P,) * 16, c_int),
    "before_backward": (*(_N,) * 5, *(_P,) * 18, c_int),
    "after_forward": (*(_N,) * 4, c_float, *(_P,) * 15, c_int),
    "after_backward": (*(_N,) * 4, *(_P,) * 15, c_int),
}


@cache
def _function(name: str, dtype: torch.dtype) -> Any:
    library: CDLL | None = built().library
    assert library is not None, "callers check first"
    function = getattr(library, f"{name}_{TYPES[dtype]}")
    function.argtypes, function.restype = _ARGUMENTS[name], None
    return function


def call(name: str, dtype: torch.dtype, *arguments: int | float | Tensor | None, threads: bool = True) -> None:
    """Run a kernel, with all of torch's threads if it takes `threads`."""
    given = [argument.data_ptr() if isinstance(argument, Tensor) else argument for argument in arguments]
    _function(name, dtype)(*given, *((torch.get_num_threads(),) if threads else ()))


def packed_bytes(dtype: torch.dtype, outputs: int, inputs: int) -> int:
    """Size of a matrix in the layout of `posttrain.kernels.packed_matrix`."""
    function = _function("packed_bytes", dtype)
    function.restype = c_int64
    return int(function(outputs, inputs))


def _summed(partial_BD: Tensor, dtype: torch.dtype) -> Tensor:
    """[D] the gradient of a norm's weight from those of its blocks."""
    return partial_BD.sum(0).to(dtype)


def _partial(rows: int, width: int) -> Tensor:
    return torch.empty(-(-rows // BLOCK), width)


class AddNorm(torch.autograd.Function):
    """``x + delta``, and the RMS norm of it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, delta: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
        """[R, D] each."""
        x, delta = x.contiguous(), delta.contiguous()
        total, y, rstd = torch.empty_like(x), torch.empty_like(x), torch.empty(len(x))
        call("norm_forward", x.dtype, len(x), x.shape[1], eps, x, delta, weight, total, y, rstd)
        ctx.save_for_backward(total, weight, rstd)
        ctx.set_materialize_grads(False)
        return total, y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor | None, grad_y: Tensor | None) -> tuple[Tensor | None, ...]:
        """The same gradient for both summands."""
        if grad_y is None:
            return grad_total, grad_total, None, None
        grad_x, grad_weight = _norm_backward(ctx.saved_tensors, grad_y, grad_total)
        return grad_x, grad_x, grad_weight, None


class Norm(torch.autograd.Function):
    """RMS norm."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """[R, D]."""
        x = x.contiguous()
        y, rstd = torch.empty_like(x), torch.empty(len(x))
        call("norm_forward", x.dtype, len(x), x.shape[1], eps, x, None, weight, None, y, rstd)
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        """Of x and the weight."""
        return *_norm_backward(ctx.saved_tensors, grad_y, None), None


def _norm_backward(saved: Any, grad_y: Tensor, grad_total: Tensor | None) -> tuple[Tensor, Tensor]:
    total, weight, rstd = saved
    grad_x, partial = torch.empty_like(total), _partial(*total.shape)
    more = None if grad_total is None else grad_total.contiguous()
    call(
        "norm_backward", total.dtype, *total.shape, total, weight, rstd, grad_y.contiguous(), more, grad_x, partial
    )  # fmt: skip
    return grad_x, _summed(partial, weight.dtype)


class Rotate(torch.autograd.Function):
    """Rotary positions, after a norm of each head if it has a weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor | None, eps: float, cosine: Tensor, sine: Tensor) -> Tensor:
        """[R, H, d]; cosine and sine are float32 [R, d / 2]."""
        x = x.contiguous()
        y, rstd = torch.empty_like(x), torch.empty(x.shape[:2])
        call("rotate_forward", x.dtype, *x.shape, eps, x, weight, cosine, sine, y, rstd)
        ctx.save_for_backward(x, weight, rstd, cosine, sine)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        """Of x and the weight."""
        x, weight, rstd, cosine, sine = ctx.saved_tensors
        grad_x, partial = torch.empty_like(x), None if weight is None else _partial(len(x), x.shape[2])
        call(
            "rotate_backward", x.dtype, *x.shape, x, weight, rstd, cosine, sine, grad_y.contiguous(), grad_x, partial
        )  # fmt: skip
        grad_weight = None if partial is None else _summed(partial, x.dtype)
        return grad_x, grad_weight, None, None, None


class Gate(torch.autograd.Function):
    """``silu(gate) * up``."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        """[R, D]."""
        gate, up = gate.contiguous(), up.contiguous()
        y = torch.empty_like(gate)
        call("gate_forward", gate.dtype, *gate.shape, gate, up, y)
        ctx.save_for_backward(gate, up)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor, Tensor]:
        """Of both."""
        gate, up = ctx.saved_tensors
        grad_gate, grad_up = torch.empty_like(gate), torch.empty_like(up)
        call("gate_backward", gate.dtype, *gate.shape, gate, up, grad_y.contiguous(), grad_gate, grad_up)
        return grad_gate, grad_up


class PackedAttention(torch.autograd.Function):
    """Causal attention of packed sequences, some of which continue another."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, layout: PackedLayout) -> Tensor:
        """[R, H * d] from query [R, H, d], key and value [R, K, d]."""
        query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
        rows, heads, width = query.shape
        y, sums = query.new_empty(rows, heads * width), torch.empty(rows, heads)
        y[layout.begin[-1] :] = 0.0
        call("packed_forward", query.dtype, *_where(layout, query, key), query, key, value, width**-0.5, y, sums)
        ctx.save_for_backward(query, key, value, y, sums)
        ctx.layout = layout
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        """Of query, key and value."""
        query, key, value, y, sums = ctx.saved_tensors
        grads = [torch.empty_like(x) for x in (query, key, value)]
        for grad in grads:
            grad[ctx.layout.begin[-1] :] = 0.0
        given = (query, key, value, query.shape[2] ** -0.5, y, sums, grad_y.contiguous())
        call("packed_backward", query.dtype, *_where(ctx.layout, query, key), *given, *grads)
        return *grads, None


class TokenSignals(torch.autograd.Function):
    """Log-probability of tokens, and entropy."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, token: Tensor, temperature: float, entropy: bool
    ) -> tuple[Tensor, Tensor | None]:
        """[T] each, float32."""
        logits, token = logits.contiguous(), token.contiguous()
        logp, kept = torch.empty(len(token)), torch.empty(len(token), 3)
        entropies = torch.empty(len(token)) if entropy else None
        call("signals_forward", logits.dtype, *logits.shape, temperature, logits, token, logp, entropies, kept)
        ctx.save_for_backward(logits, token, kept)
        ctx.temperature, ctx.gone = temperature, False
        ctx.set_materialize_grads(False)
        return logp, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_logp: Tensor | None, of_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        """Of the logits, in place. Raises `RuntimeError` the second time."""
        once_only(ctx)
        logits, token, kept = ctx.saved_tensors
        given = (None if grad is None else grad.contiguous() for grad in (of_logp, of_entropy))
        call("signals_backward", logits.dtype, *logits.shape, ctx.temperature, logits, token, kept, *given)
        return logits, None, None, None


def once_only(ctx: Any) -> None:
    """For backward passes that overwrite saved tensors: raises `RuntimeError` the second time."""
    if ctx.gone:
        raise RuntimeError("this graph can be backpropagated once only, also with retain_graph: compute it again")
    ctx.gone = True


def _where(layout: PackedLayout, query: Tensor, key: Tensor) -> tuple[int | Tensor, ...]:
    """The layout and the sizes, as arguments of both kernels."""
    heads, width = query.shape[1:]
    families = len(layout.family) - 1
    return families, layout.begin, layout.after, layout.family, layout.order, heads, key.shape[1], width
