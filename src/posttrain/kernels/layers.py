"""A decoder's layer before and after its attention, on a CPU with wide vectors: norm, matrices and gate are computed a
few rows at a time, so that intermediate results stay in the cache.

The same as the modules up to rounding, tested against them in float64. Gradients of matrices are single products over
all rows. The inputs of a layer's norms and of its gate are kept for the backward pass; the rest is recomputed from
them, which is faster than reading it.

R rows, D width, H heads, K key heads, d width of a head, A = H d.
"""

from collections.abc import Callable, Sequence
from ctypes import c_int64
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from posttrain.kernels._build import built
from posttrain.kernels._cpu import call, once_only
from posttrain.kernels.panels import below, beside, lays_out_pairs
from posttrain.kernels.products import LARGE_MATRIX, has_matrix_unit, has_wide_vectors, master_of, product, room_of

__all__ = ["Adapted", "after_attention", "before_attention", "covered", "has_wide_vectors"]


class Adapted(nn.Linear):
    """A frozen linear layer with a trained update of low rank: ``W + scale B A``."""

    lora_A: nn.Parameter
    """[rank, inputs]"""
    lora_B: nn.Parameter
    """[outputs, rank]"""
    scale: float
    keep: Callable[[Tensor, Tensor], None] | None = None
    """Gets the inputs [R, inputs] and the gradients of the outputs [R, outputs] of a backward pass, where it is set;
    then the update has no gradients. The tensors are not changed afterwards.
    """

    @property
    def whole(self) -> Tensor:
        """[outputs, inputs] the matrix that computes the same, in float32 or better; no gradient goes through it."""
        return _whole(self.weight.detach(), self.lora_A.detach(), self.lora_B.detach(), self.scale)


def _blocks(rows: int) -> int:
    """Number of blocks in which the kernels take this many rows; the gradient of a norm's weight is summed in each."""
    library = built().library
    assert library is not None, "callers check first"
    return -(-rows // int(library.rows_of_block(c_int64(rows))))


def covered(x_RD: Tensor, linears: Sequence[nn.Module], norms: Sequence[nn.Module]) -> bool:
    """Whether the functions here can replace these modules: linear layers, plain or `Adapted`, and RMS norms, all in
    the type of the rows, on a CPU with wide vectors. In bfloat16, a matrix unit is faster.
    """
    if not (has_wide_vectors() and x_RD.device.type == "cpu" and x_RD.dtype in (torch.float32, torch.bfloat16)):
        return False
    if x_RD.dtype == torch.bfloat16:
        adapted = any(isinstance(linear, Adapted) for linear in linears)  # a small update would be rounded off
        if has_matrix_unit() or (adapted and lays_out_pairs()):
            return False
    plain = all(type(linear) is nn.Linear or isinstance(linear, Adapted) for linear in linears) and all(
        type(norm) in (nn.RMSNorm, nn.Identity) for norm in norms
    )
    return plain and all(p.dtype == x_RD.dtype for module in (*linears, *norms) for p in module.parameters())


def before_attention(
    x_RD: Tensor,
    delta_RD: Tensor | None,
    norm: nn.RMSNorm,
    projections: Sequence[nn.Linear],
    head_norms: Sequence[nn.Module],
    head_width: int,
    rotation: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``x + delta`` [R, D], and from its norm queries [R, H, d], keys and values [R, K, d]; differentiable.

    Queries and keys are normed head by head where `head_norms` are norms, and rotated by `rotation`, cosine and sine,
    float32 [R, d / 2]. Only for `covered` modules.
    """
    weights = (*(p.weight for p in projections), *(p.bias for p in projections))
    head_weights = [n.weight if isinstance(n, nn.RMSNorm) else None for n in head_norms]
    head_eps = next((n.eps or 0.0 for n in head_norms if isinstance(n, nn.RMSNorm)), 0.0)
    how = _Before(norm.eps or 0.0, head_eps, head_width, *rotation, kept=torch.is_grad_enabled())
    low_rank, updates = _low_rank(projections)
    outputs: Any = BeforeAttention.apply(how, updates, x_RD, delta_RD, norm.weight, *head_weights, *weights, *low_rank)  # type: ignore[no-untyped-call]
    total, query, key, value = outputs
    return total, query, key, value


def after_attention(
    x_RD: Tensor, attended_RA: Tensor, output: nn.Linear, norm: nn.RMSNorm, mlp: Sequence[nn.Linear]
) -> tuple[Tensor, Tensor]:
    """``x + output(attended)``, and the MLP of its norm, [R, D] each; differentiable. `mlp` are the gate, up and down
    projections. Only for `covered` modules.
    """
    linears = (output, *mlp)
    weights = (*(linear.weight for linear in linears), *(linear.bias for linear in linears))
    low_rank, updates = _low_rank(linears)
    how = norm.eps or 0.0, torch.is_grad_enabled(), updates
    both: Any = AfterAttention.apply(*how, x_RD, attended_RA, norm.weight, *weights, *low_rank)  # type: ignore[no-untyped-call]
    total, delta = both
    return total, delta


@dataclass(frozen=True, slots=True)
class _Before:
    eps: float
    head_eps: float
    head_width: int
    cosine: Tensor
    sine: Tensor
    kept: bool
    """Whether there may be a backward pass."""


class BeforeAttention(torch.autograd.Function):
    """Norm, projections and rotary positions."""

    @staticmethod
    def forward(
        ctx: Any,
        how: _Before,
        updates: "Updates",
        x: Tensor,
        delta: Tensor | None,
        norm: Tensor,
        *parameters: Tensor | None,
    ) -> tuple[Tensor, ...]:
        """Parameters are two weights of head norms, three matrices, three biases, and what `_low_rank` gives."""
        head_norms, biases, low_rank = parameters[:2], parameters[5:8], parameters[8:]
        kept = [matrix for matrix in parameters[2:5] if matrix is not None]
        matrices = _wholes(kept, low_rank, updates)
        bias = _stacked(biases)
        x, delta = x.contiguous(), None if delta is None else delta.contiguous()
        d, rows = how.head_width, len(x)
        heads, key_heads = (len(matrix) // d for matrix in matrices[:2])
        sizes = (rows, x.shape[1], heads, key_heads, d)
        total, rstd = torch.empty_like(x), torch.empty(rows)
        normed = how.kept and any(weight is not None for weight in head_norms)  # else rotations alone are undone
        straight = x.new_empty(rows, heads + key_heads, d) if normed else None
        head_rstd = torch.empty(rows, heads + key_heads)
        query, key, value = (x.new_empty(rows, count, d) for count in (heads, key_heads, key_heads))
        angles = (*head_norms, how.cosine.contiguous(), how.sine.contiguous())
        given = (x, delta, norm, beside(matrices)[0], bias, *angles)
        results = (total, rstd, straight, head_rstd, query, key, value)
        call("before_forward", x.dtype, *sizes, how.eps, how.head_eps, *given, *results)
        ctx.save_for_backward(total, rstd, norm, straight, head_rstd, *angles, *kept, *low_rank)
        ctx.updates, ctx.sizes, ctx.has_bias, ctx.has_delta = updates, sizes, bias is not None, delta is not None
        ctx.set_materialize_grads(False)
        return total, query, key, value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor | None, *grad_heads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Of all inputs."""
        total, rstd, norm, straight, head_rstd, *more_saved = ctx.saved_tensors
        angles, low_rank = more_saved[:4], more_saved[7:]
        matrices = _wholes(more_saved[4:7], low_rank, ctx.updates)
        rows, width, heads, key_heads, d = ctx.sizes
        shapes = ((rows, heads, d), (rows, key_heads, d), (rows, key_heads, d))
        grads = [_or_zeros(grad, total, shape) for grad, shape in zip(grad_heads, shapes, strict=True)]
        parts = [len(matrix) for matrix in matrices]
        grad_projected, hidden = total.new_empty(rows, sum(parts)), torch.empty_like(total)
        grad_x, partial = torch.empty_like(total), torch.empty(_blocks(rows), width + 2 * d)
        more = None if grad_total is None else grad_total.contiguous()
        given = (total, rstd, norm, below(matrices)[0], *angles, straight, head_rstd, *grads, more)
        call("before_backward", total.dtype, *ctx.sizes, *given, grad_projected, hidden, grad_x, partial)
        of_norm, of_query_norm, of_key_norm = torch.split(partial.sum(0).to(total.dtype), [width, d, d])
        of_matrices = _of_stacked(more_saved[4:7], grad_projected, hidden, ctx.needs_input_grad[7:10])
        of_low_rank = _of_low_rank(torch.split(grad_projected, parts, 1), [hidden] * 3, low_rank, ctx.updates)
        of_biases = _if(ctx.has_bias, lambda: torch.split(grad_projected.sum(0), parts), 3)
        head_norms = [None if w is None else g for w, g in zip(angles[:2], (of_query_norm, of_key_norm), strict=True)]
        of_delta = grad_x if ctx.has_delta else None
        return None, None, grad_x, of_delta, of_norm, *head_norms, *of_matrices, *of_biases, *of_low_rank


class AfterAttention(torch.autograd.Function):
    """Output projection, residual, norm and MLP."""

    @staticmethod
    def forward(
        ctx: Any,
        eps: float,
        kept: bool,
        updates: "Updates",
        x: Tensor,
        attended: Tensor,
        norm: Tensor,
        *parameters: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Parameters are four matrices and four biases, of output, gate, up and down, and what `_low_rank` gives."""
        matrices, low_rank = [matrix for matrix in parameters[:4] if matrix is not None], parameters[8:]
        output, gate, up, down = _wholes(matrices, low_rank, updates)
        output_bias, gate_bias, up_bias, down_bias = parameters[4:8]
        x, attended = x.contiguous(), attended.contiguous()
        sizes = (*x.shape, attended.shape[1], len(gate))
        total, delta, rstd = torch.empty_like(x), torch.empty_like(x), torch.empty(len(x))
        halves = [x.new_empty(len(x), len(gate)) if kept else None for _ in range(2)]
        panels = beside([output], [gate], [up], [down])
        by = (*panels, output_bias, _stacked((gate_bias, up_bias)), down_bias, norm)
        call("after_forward", x.dtype, *sizes, eps, x, attended, *by, total, rstd, *halves, delta)
        ctx.save_for_backward(attended, total, rstd, *halves, norm, *matrices, *low_rank)
        ctx.updates, ctx.sizes, ctx.gone = updates, sizes, False
        ctx.biases = [bias is not None for bias in parameters[4:8]]
        ctx.set_materialize_grads(False)
        return total, delta

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_total: Tensor | None, grad_delta: Tensor | None) -> tuple[Tensor | None, ...]:
        """Of all inputs. Raises `RuntimeError` the second time: the gated tensors are overwritten by gradients."""
        once_only(ctx)
        attended, total, rstd, gate_half, up_half, norm, *more_saved = ctx.saved_tensors
        halves, low_rank = (gate_half, up_half), more_saved[4:]
        output, gate, up, down = _wholes(more_saved[:4], low_rank, ctx.updates)
        rows, width, _, mlp_width = ctx.sizes
        grad_delta = _or_zeros(grad_delta, total, (rows, width))
        more = None if grad_total is None else grad_total.contiguous()
        gated = total.new_empty(rows, mlp_width)
        hidden, grad_x, grad_attended = torch.empty_like(total), torch.empty_like(total), torch.empty_like(attended)
        partial = torch.empty(_blocks(rows), width)
        panels = below([output], [gate, up], [down])
        given = (*panels, norm, total, rstd, *halves, grad_delta, more)
        results = (gated, hidden, grad_x, grad_attended, partial)
        call("after_backward", total.dtype, *ctx.sizes, *given, *results)
        grads, inputs = (grad_x, *halves, grad_delta), (attended, hidden, hidden, gated)
        gradients = zip(ctx.needs_input_grad[6:10], more_saved, grads, inputs, strict=False)
        of_matrices = [_of_matrix(weight, grad, seen) if needed else None for needed, weight, grad, seen in gradients]
        of_biases = [grad.sum(0) if has else None for has, grad in zip(ctx.biases, grads, strict=True)]
        of_norm = partial.sum(0).to(total.dtype)
        of_low_rank = _of_low_rank(grads, inputs, low_rank, ctx.updates)
        return None, None, None, grad_x, grad_attended, of_norm, *of_matrices, *of_biases, *of_low_rank


Updates = Sequence[Adapted | None]
"""Of some matrices the layers that update them; empty where none does."""


def _low_rank(linears: Sequence[nn.Linear]) -> tuple[list[Tensor | None], Updates]:
    """``A`` and ``B`` of each layer's update, None where it has none, and these layers; nothing where no layer has."""
    if not any(isinstance(linear, Adapted) for linear in linears):
        return [], ()
    updates = [linear if isinstance(linear, Adapted) else None for linear in linears]
    return [tensor for x in updates for tensor in ((None, None) if x is None else (x.lora_A, x.lora_B))], updates


def _whole(matrix: Tensor, down: Tensor, up: Tensor, scale: float) -> Tensor:
    """A matrix with its update, not rounded to half precision: a small update would be lost."""
    wide = torch.promote_types(matrix.dtype, torch.float32)
    return torch.addmm(matrix.to(wide), up.to(wide), down.to(wide), alpha=scale)


def _wholes(matrices: Sequence[Tensor], low_rank: Sequence[Tensor | None], updates: Updates) -> list[Tensor]:
    """Matrices with their updates. They are made for each use: kept, they would be a second copy of the model."""
    if not updates:
        return list(matrices)
    of_each = zip(matrices, low_rank[::2], low_rank[1::2], updates, strict=True)
    return [
        matrix if layer is None or down is None or up is None else _whole(matrix, down, up, layer.scale)
        for matrix, down, up, layer in of_each
    ]


def _of_low_rank(
    grads: Sequence[Tensor], inputs: Sequence[Tensor], low_rank: Sequence[Tensor | None], updates: Updates
) -> list[Tensor | None]:
    """Gradients of what `_low_rank` gave, from those of the products [R, outputs] and their inputs [R, inputs]."""
    found: list[Tensor | None] = []
    for number, layer in enumerate(updates):
        down, up = low_rank[2 * number : 2 * number + 2]
        grad, seen = grads[number], inputs[number]
        if layer is not None and layer.keep is not None:
            layer.keep(seen, grad)
        if layer is None or layer.keep is not None or down is None or up is None:
            found += [None, None]
            continue
        found += [layer.scale * ((grad @ up).t() @ seen), layer.scale * (grad.t() @ (seen @ down.t()))]
    return found


def outer(x_RX: Tensor, y_RY: Tensor) -> Tensor:
    """[X, Y] the sum over rows of their outer products. Of small matrices in float32 it is torch's to the bit."""
    if x_RX.dtype == torch.float32 and x_RX.shape[1] * y_RY.shape[1] < LARGE_MATRIX:
        return x_RX.t() @ y_RY
    return product(x_RX.t(), y_RY).to(x_RX.dtype)


def _of_matrix(weight: Tensor, grad_RX: Tensor, seen_RY: Tensor) -> Tensor | None:
    """[X, Y] the gradient of a weight; none where it was added to that of its master, with the same bits."""
    if (master := master_of(weight)) is None:
        return outer(grad_RX, seen_RY)
    master.grad = product(grad_RX.t(), seen_RY, added_to=master.grad, into=room_of(master), rounded=True)
    return None


def _of_stacked(
    weights: Sequence[Tensor], grad_RX: Tensor, seen_RY: Tensor, needed: Sequence[bool]
) -> Sequence[Tensor | None]:
    """The same of matrices with the same inputs, whose outputs are concatenated."""
    parts = [len(weight) for weight in weights]
    if not any(master_of(weight) is not None for weight in weights):
        return _if(any(needed), lambda: torch.split(outer(grad_RX, seen_RY), parts), len(parts))
    each = zip(needed, weights, torch.split(grad_RX, parts, 1), strict=True)
    return [_of_matrix(weight, grad, seen_RY) if wanted else None for wanted, weight, grad in each]


def _stacked(parts: Sequence[Tensor | None]) -> Tensor | None:
    """Concatenated biases, all of them or none."""
    given = [part for part in parts if part is not None]
    assert len(given) in (0, len(parts)), "a model has biases for all of them or for none"
    return torch.cat(given) if given else None


def _or_zeros(grad: Tensor | None, like: Tensor, shape: Sequence[int]) -> Tensor:
    return like.new_zeros(shape) if grad is None else grad.contiguous()


def _if(wanted: bool, compute: Callable[[], Sequence[Tensor]], count: int) -> Sequence[Tensor | None]:
    return compute() if wanted else [None] * count
