"""A decoder's kernels for CPUs: operations besides matrix products in few passes over memory, and a whole decoding
step. The parts of a layer before and after attention, with their matrices, are in `posttrain.kernels.layers`.

Each function is defined by the torch operations that it falls back to. On Linux with a C++ compiler, CPU tensors in
float32 and bfloat16 use the C++ kernels of this folder, compiled once for the machine. They are equal up to rounding,
tested against the plain operations in float64, and compute every row independently of the others, bit for bit.
``POSTTRAIN_KERNELS=off`` switches them off; `status` returns which are in use, and a run's environment.json records it.

R rows, D width, H heads, K key heads, d width of a head, T tokens, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posttrain.kernels._build import built, folder
from posttrain.kernels._layout import PackedLayout
from posttrain.kernels.rooms import Room
from posttrain.statistics.philox import uniform as _uniform

__all__ = [
    "PAGE",
    "DecoderSizes",
    "DecoderWeights",
    "Drawing",
    "PackedLayout",
    "add_norm",
    "choose",
    "continued_attention",
    "decode",
    "decode_and_draw",
    "decode_attention",
    "folder",
    "gated",
    "norm",
    "packed_attention",
    "packed_bytes",
    "packed_matrix",
    "packed_width",
    "product",
    "rotate",
    "status",
    "token_signals",
    "uniform",
    "usable",
]

PAGE = 16
"""Tokens in a page of keys and values, as in the source."""


def status() -> str:
    """The kernels in use on the CPU: ``compiled``, or ``plain`` with the reason."""
    found = built()
    return "compiled" if found.library is not None else f"plain: {found.why_not}"


def usable(*tensors: Tensor | None) -> bool:
    """Whether the kernels support these tensors."""
    given = [tensor for tensor in tensors if tensor is not None]
    first = given[0].dtype
    if first not in (torch.float32, torch.bfloat16):
        return False
    return all(t.device.type == "cpu" and t.dtype == first for t in given) and built().library is not None


def norm(x_RD: Tensor, by: nn.RMSNorm) -> Tensor:
    """[R, D] RMS norm."""
    if not usable(x_RD, by.weight):
        plain: Tensor = by(x_RD)
        return plain
    from posttrain.kernels._cpu import Norm

    normed: Tensor = Norm.apply(x_RD, by.weight, by.eps)  # type: ignore[no-untyped-call]
    return normed


def add_norm(x_RD: Tensor, delta_RD: Tensor, by: nn.RMSNorm) -> tuple[Tensor, Tensor]:
    """``x + delta`` and its RMS norm, [R, D] each."""
    if not usable(x_RD, delta_RD, by.weight):
        total = x_RD + delta_RD
        return total, by(total)
    from posttrain.kernels._cpu import AddNorm

    both: tuple[Tensor, Tensor] = AddNorm.apply(x_RD, delta_RD, by.weight, by.eps)  # type: ignore[no-untyped-call]
    return both


def rotate(x_RHd: Tensor, by: nn.Module, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """[R, H, d] heads, normed by `by` if it is a norm, the pair (i, i + d / 2) of each rotated by the angle of its row.

    `rotation` is cosine and sine, float32 [R, d / 2].
    """
    weight = by.weight if isinstance(by, nn.RMSNorm) else None
    if usable(x_RHd, weight):
        from posttrain.kernels._cpu import Rotate

        eps = by.eps if isinstance(by, nn.RMSNorm) else 0.0
        rotated: Tensor = Rotate.apply(x_RHd, weight, eps, *rotation)  # type: ignore[no-untyped-call]
        return rotated
    cosine, sine = (angle.to(x_RHd.dtype)[:, None] for angle in rotation)
    a, b = by(x_RHd).chunk(2, dim=-1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), dim=-1)


def gated(gate_RD: Tensor, up_RD: Tensor) -> Tensor:
    """[R, D] ``silu(gate) * up``."""
    if not usable(gate_RD, up_RD):
        return F.silu(gate_RD) * up_RD
    from posttrain.kernels._cpu import Gate

    y: Any = Gate.apply(gate_RD, up_RD)  # type: ignore[no-untyped-call]
    product: Tensor = y
    return product


def token_signals(
    logits_TV: Tensor, token_T: Tensor, *, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of a token of each row, and the row's entropy if requested; [T] each, in float32 or better.

    Tokens are int64. A token beyond the vocabulary raises: `IndexError` by the kernel. The logits must not be used
    after a backward pass: their gradient may be written in place.
    """
    assert token_T.shape == logits_TV.shape[:1] and token_T.dtype == torch.int64, "a token for each row"
    if usable(logits_TV) and token_T.device.type == "cpu":
        from posttrain.kernels._cpu import TokenSignals

        if len(token_T) and not 0 <= int(token_T.min()) <= int(token_T.max()) < logits_TV.shape[1]:
            raise IndexError(
                f"tokens 0 to {logits_TV.shape[1] - 1} have logits; got {token_T.min()} to {token_T.max()}"
            )
        signals: Any = TokenSignals.apply(logits_TV, token_T, temperature, entropy)  # type: ignore[no-untyped-call]
        logp_T, entropy_T = signals
        return logp_T, entropy_T
    logits_TV = logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32))
    logp_TV = (logits_TV if temperature == 1.0 else logits_TV / temperature).log_softmax(-1)
    logp_T = logp_TV.gather(1, token_T[:, None])[:, 0]
    finite_TV = logp_TV.clamp_min(torch.finfo(logp_TV.dtype).min)  # impossible tokens add 0, not 0 times infinity
    return logp_T, -(logp_TV.exp() * finite_TV).sum(-1) if entropy else None


def packed_attention(query: Tensor, key: Tensor, value: Tensor, layout: PackedLayout) -> Tensor:
    """[R, H * d] causal attention of packed sequences, each to its prefix and to itself; differentiable.

    query [R, H, d], key and value [R, K, d]; rows beyond the last sequence are 0. There is no plain form: check
    `usable` first.
    """
    from posttrain.kernels._cpu import PackedAttention

    out: Tensor = PackedAttention.apply(query, key, value, layout)  # type: ignore[no-untyped-call]
    return out


def decode_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keys: Tensor,
    values: Tensor,
    page_BP: Tensor,
    length_B: Tensor,
    out: Tensor,
) -> None:
    """Append one new token of each of B sequences to pages of keys and values, and attend to all tokens of its
    sequence.

    query [R, H, d], key and value [R, K, d] with R >= B; keys [pages, K, d, `PAGE`] and values [pages, `PAGE`, K, d];
    page_BP, int32, the pages of each sequence; length_B, int64, the number of cached tokens of each; out [R, H * d], of
    which B rows are written. There is no plain form: check `usable` first.
    """
    from posttrain.kernels._cpu import call

    heads, width = query.shape[1:]
    given = (query.contiguous(), key.contiguous(), value.contiguous(), keys, values, page_BP)
    sizes = (len(length_B), heads, key.shape[1], width)
    call("decode_attention", query.dtype, *sizes, *given, page_BP.shape[1], length_B, width**-0.5, out)


def continued_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    begin: Tensor,
    keys: Tensor,
    values: Tensor,
    page_BP: Tensor,
    length_B: Tensor,
) -> Tensor:
    """[R, H * d] attention of the new tokens of B sequences to themselves and to what pages hold: the bits that
    `packed_attention` gives for whole sequences.

    query [R, H, d], key and value [R, K, d]; begin, int64 [B + 1], the first rows of the sequences, of which rows
    beyond the last are 0; keys, values, page_BP and length_B as in `decode_attention`. There is no plain form: check
    `usable` first.
    """
    from posttrain.kernels._cpu import call

    rows, heads, width = query.shape
    out = query.new_empty(rows, heads * width)
    out[int(begin[-1]) :] = 0.0
    given = (query.contiguous(), key.contiguous(), value.contiguous(), keys, values, page_BP)
    sizes = (len(length_B), heads, key.shape[1], width)
    call("continued_attention", query.dtype, *sizes, begin, *given, page_BP.shape[1], length_B, width**-0.5, out)
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSizes:
    """Sizes of a decoder for `decode`."""

    width: int
    heads: int
    key_heads: int
    head_width: int
    mlp_width: int
    eps: float
    """Of the norms of the residual stream."""
    head_eps: float
    """Of the norms of queries and keys."""


def packed_matrix(weight_OI: Tensor, room: Room | None = None) -> Tensor:
    """A copy of a matrix [outputs, inputs] in the layout of `decode`, as bytes; for `usable` tensors."""
    from posttrain.kernels._cpu import call, packed_bytes

    size = packed_bytes(weight_OI.dtype, *weight_OI.shape)
    packed = torch.empty(size, dtype=torch.uint8) if room is None else room.take((size,), torch.uint8)
    call("pack", weight_OI.dtype, *weight_OI.shape, weight_OI.contiguous(), packed)
    return packed


def packed_bytes(weight_OI: Tensor) -> int:
    """Bytes of `packed_matrix`."""
    from posttrain.kernels import _cpu

    return _cpu.packed_bytes(weight_OI.dtype, *weight_OI.shape)


def packed_width(dtype: str) -> int:
    """Bytes of a number in the layout of `packed_matrix`; 0 without kernels."""
    if built().library is None:
        return 0
    from posttrain.kernels import _cpu

    return _cpu.packed_bytes(getattr(torch, dtype), 32, 32) // 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """Sampling of B rows without truncation. Tensors on the host."""

    temperature_B: Tensor
    """float64; 0 is greedy."""
    key_B: Tensor
    """uint64; with the counters, the draws of `uniform`."""
    counter_B: Tensor
    """uint64: that of the next token; the following tokens increment it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderWeights:
    """Weights for `decode`."""

    sizes: DecoderSizes
    address_LA: Tensor
    """int64: the addresses of each layer's weights and pages, in the order of ``Layer`` in the source."""
    embedding_VD: Tensor
    last_norm_D: Tensor
    head: Tensor | None
    """The output matrix in the layout of `packed_matrix`, for `decode_and_draw`."""


def decode(
    weights: DecoderWeights, token_ids_B: Tensor, page_BP: Tensor, length_B: Tensor, rotation: tuple[Tensor, Tensor]
) -> Tensor:
    """[B, D] last hidden states of one new token of each of B sequences, whose keys and values are added to the pages.

    token_ids_B, int64; `rotation` is cosine and sine, float32 [places, d / 2]; pages and lengths as in
    `decode_attention`. A row is bit-identical in any batch. There is no plain form: check `usable` first.
    """
    y_BD = weights.embedding_VD.new_empty(len(token_ids_B), weights.sizes.width)
    _decode(weights, token_ids_B, page_BP, length_B, rotation, (y_BD, None, 0, 1, *(None,) * 6))
    return y_BD


def decode_and_draw(
    weights: DecoderWeights,
    token_ids_B: Tensor,
    page_BP: Tensor,
    length_B: Tensor,
    rotation: tuple[Tensor, Tensor],
    drawing: Drawing,
    steps: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """`decode`, then `product` with the head, then `choose`, N = `steps` times in one call, with the same bits: tokens,
    int64 [B, N], their log-probabilities, and the entropies that they were drawn at, float64 [B, N]. There must be room
    for N tokens.
    """
    assert weights.head is not None, "callers have one"
    token_BN = torch.empty(len(token_ids_B), steps, dtype=torch.int64)
    logp_BN, entropy_BN = (torch.empty(len(token_ids_B), steps, dtype=torch.float64) for _ in range(2))
    how = (drawing.temperature_B.contiguous(), drawing.key_B.contiguous(), drawing.counter_B.contiguous())
    end = (None, weights.head, len(weights.embedding_VD), steps, *how, token_BN, logp_BN, entropy_BN)
    _decode(weights, token_ids_B, page_BP, length_B, rotation, end)
    return token_BN, logp_BN, entropy_BN


def _decode(
    weights: DecoderWeights,
    token_ids_B: Tensor,
    page_BP: Tensor,
    length_B: Tensor,
    rotation: tuple[Tensor, Tensor],
    end: tuple[Tensor | int | None, ...],
) -> None:
    from posttrain.kernels._cpu import call

    n, address_LA = weights.sizes, weights.address_LA
    known_B = (token_ids_B >= 0) & (token_ids_B < len(weights.embedding_VD))
    assert known_B.all(), "callers check ids: memory beyond the embedding would be read"
    sizes = (n.width, n.heads, n.key_heads, n.head_width, n.mlp_width, n.eps, n.head_eps)
    given = (address_LA, token_ids_B.contiguous(), weights.embedding_VD, weights.last_norm_D)
    where = (page_BP, page_BP.shape[1], length_B.clone(), *rotation)  # the kernel increments it
    dtype = weights.embedding_VD.dtype
    call("decode", dtype, len(address_LA), len(token_ids_B), *sizes, *given, *where, *end)


def product(x_RI: Tensor, packed: Tensor, outputs: int) -> Tensor:
    """[R, outputs] rows times a matrix in the layout of `packed_matrix`. A row is bit-identical in any batch and in
    `decode_and_draw`. There is no plain form: check `usable` first.
    """
    from posttrain.kernels._cpu import call

    y = x_RI.new_empty(len(x_RI), outputs)
    call("product", x_RI.dtype, *x_RI.shape, outputs, x_RI.contiguous(), packed, y)
    return y


def choose(logits_BV: Tensor, temperature_B: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A token of each row, int64 [B], its log-probability and the row's entropy, float64 [B]: as the engine's choice
    without truncation. Temperatures and draws are float64. There is no plain form: check `usable` first.
    """
    from posttrain.kernels._cpu import call

    assert temperature_B.dtype == uniform_B.dtype == torch.float64, "as the kernel reads them"
    token_B = torch.empty(len(logits_BV), dtype=torch.int64)
    logp_B, entropy_B = (torch.empty(len(logits_BV), dtype=torch.float64) for _ in range(2))
    given = (logits_BV.contiguous(), temperature_B.contiguous(), uniform_B.contiguous())
    call("choose", logits_BV.dtype, *logits_BV.shape, *given, token_B, logp_B, entropy_B)
    return token_B, logp_B, entropy_B


def uniform(key_B: Tensor, counter_B: Tensor) -> Tensor:
    """[B] numbers in [0, 1), float64, of keys and counters, uint64 each: the bits of `posttrain.statistics.philox`."""
    if built().library is None:
        return torch.from_numpy(_uniform(key_B.numpy(), counter_B.numpy()))
    from posttrain.kernels._cpu import call

    draw_B = torch.empty(len(key_B), dtype=torch.float64)
    call("uniform", torch.float64, len(key_B), key_B.contiguous(), counter_B.contiguous(), draw_B, threads=False)
    return draw_B
