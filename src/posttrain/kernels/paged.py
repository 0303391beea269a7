"""One decoding step's attention on a GPU, with paged keys and values, by Triton kernels.

The operations of torch here are the definition. On an NVIDIA GPU the kernels of `_triton` compute the same (CUDA builds
of torch include Triton): no pages are gathered or copied, and a sequence's numbers depend on its own tokens only. A
long sequence is divided into splits of `SPLIT` tokens that are computed in parallel and added in order (Dao et al.
2023, flash decoding). The splits depend on its own length only.

``POSTTRAIN_KERNELS=off`` switches them off like the ones for CPUs; ``POSTTRAIN_GRAPHS=off`` keeps them, and switches
off the capture of whole steps (`posttrain.policies._graphs`). `status` returns what is in use.

B rows (one new token of a sequence each, and padding), H query heads, K key heads, d width of a head, P pages of a row.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posttrain import kernels
from posttrain.kernels import PAGE
from posttrain.kernels._build import SWITCH

SPLIT: Final = 256
"""Tokens of a sequence that one program attends to, for a key head. Fixed, so that sums run in one order."""
TYPES: Final = (torch.float32, torch.bfloat16, torch.float16)
CAPABILITY: Final = (8, 0)
"""The oldest GPUs that Triton is made for, and that compute in bfloat16: Ampere."""
GRAPHS: Final = "POSTTRAIN_GRAPHS"
"""Environment variable: ``off`` launches the kernels of a decoding step one by one."""
_TILE_BYTES: Final = 1 << 14
"""Bytes of keys, or values, that a program has at a time."""


@dataclass(slots=True)
class Places:
    """Where the keys and values of each row are: tensors that stay where they are from step to step."""

    position_B: Tensor
    """int32: tokens that the sequence holds before the new one; negative for padding, which gives 0 and writes nothing.
    """
    page_BP: Tensor
    """int32, adjacent columns: the pages of each sequence, in order; beyond its tokens, anything."""
    address_L2: Tensor
    """int64: addresses of each layer's keys and values, [pages, `PAGE`, K, d] in one piece."""
    keys: Sequence[Tensor] = field(default_factory=list)
    """By layer, what the addresses are of; the kernels do not look here."""
    values: Sequence[Tensor] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Rotary:
    """Norms of query and key heads, and the rotary angles of their positions."""

    norms: tuple[nn.Module, nn.Module]
    """Of query and key heads, as `posttrain.kernels.rotate` takes them."""
    rotation: tuple[Tensor, Tensor]
    """Cosine and sine by position, float32 [places, d / 2]."""


def usable(like: Tensor) -> bool:
    """Whether the kernels take tensors like this one."""
    return like.dtype in TYPES and like.device.type == "cuda" and not why_not(like.device)


def why_not(device: torch.device) -> str:
    """Why the kernels cannot be used on a device; empty where they can."""
    if os.environ.get(SWITCH, "on") == "off":
        return f"switched off by {SWITCH}=off"
    if device.type != "cuda" or not torch.cuda.is_available():
        return "they are for NVIDIA GPUs"
    return _why_not_on(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _why_not_on(index: int) -> str:
    capability = torch.cuda.get_device_capability(index)
    if capability < CAPABILITY:
        return f"the GPU has compute capability {'.'.join(map(str, capability))}; they are for 8.0 and later"
    if find_spec("triton") is None:
        return "Triton is not installed (pip install triton, in the version that torch names)"
    return ""


def graphs_wanted() -> bool:
    """Whether decoding steps are to be captured."""
    return os.environ.get(GRAPHS, "on") != "off"


def status(device: torch.device) -> str:
    """How a GPU decodes: ``captured``, ``kernels`` or ``plain``, with the reason where it is not the first."""
    if reason := why_not(device):
        return f"plain: {reason}"
    return "captured" if graphs_wanted() else f"kernels: no graphs are captured, by {GRAPHS}=off"


def interpreted() -> bool:
    """Whether Triton runs kernels by its interpreter, on tensors of the CPU: for tests."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def decode_attention(query: Tensor, key: Tensor, value: Tensor, rotary: Rotary, places: Places, layer: int) -> Tensor:
    """[B, H * d] of one new token of each row: its heads are normed and rotated, its key and value are stored in their
    pages, and it attends to all tokens of its sequence, itself included.

    query [B, H, d], key and value [B, K, d], in one piece each.
    """
    if usable(query) or (interpreted() and query.device.type == "cpu"):
        return _by_kernels(query, key, value, rotary, places, layer)
    return _plain(query, key, value, rotary, places, layer)


def _plain(query: Tensor, key: Tensor, value: Tensor, rotary: Rotary, places: Places, layer: int) -> Tensor:
    """The definition, by operations of torch."""
    position_B, page_BP = places.position_B.long(), places.page_BP.long()
    by_B = tuple(part[position_B.clamp(min=0)] for part in rotary.rotation)
    query, key = (kernels.rotate(x, norm, by_B) for x, norm in zip((query, key), rotary.norms, strict=True))  # type: ignore[arg-type]
    keys, values = places.keys[layer], places.values[layer]
    row = (position_B >= 0).nonzero()[:, 0]
    page, place = page_BP[row, position_B[row] // PAGE], position_B[row] % PAGE
    keys[page, place], values[page, place] = key[row], value[row]
    held_BS = torch.arange(page_BP.shape[1] * PAGE, device=query.device) <= position_B[:, None]
    page_BP = page_BP.where(held_BS[:, ::PAGE], 0)
    k, v = (stored[page_BP].flatten(1, 2).transpose(1, 2) for stored in (keys, values))  # [B, K, S, d]
    k, v = (x.where(held_BS[:, None, :, None], 0.0) for x in (k, v))
    q = query.view(len(query), key.shape[1], -1, query.shape[2])  # the heads of a key head in place of queries
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=held_BS[:, None, None, :])
    return out.where((position_B >= 0)[:, None, None, None], 0.0).flatten(1)


def _by_kernels(query: Tensor, key: Tensor, value: Tensor, rotary: Rotary, places: Places, layer: int) -> Tensor:
    where = (places.position_B, places.page_BP, places.page_BP.stride(0), places.address_L2[layer])
    return _attended(_rotated(query, key, value, rotary, where), key.shape[1], places, where)


def _rotated(query: Tensor, key: Tensor, value: Tensor, rotary: Rotary, where: tuple[object, ...]) -> Tensor:
    """The queries, normed and rotated; keys and values are stored in their pages."""
    from posttrain.kernels import _triton

    rows, heads, width = query.shape
    key_heads = key.shape[1]
    by = rotary.norms[0]
    normed = isinstance(by, nn.RMSNorm)
    weights = tuple(norm.weight if isinstance(norm, nn.RMSNorm) else query for norm in rotary.norms)
    given = (query.contiguous(), key.contiguous(), value.contiguous())
    rotated = torch.empty_like(given[0])
    _triton.rotate_and_store[(rows, heads + 2 * key_heads)](
        *given,
        rotated,
        *weights,
        float(by.eps or 0.0) if isinstance(by, nn.RMSNorm) else 0.0,
        *rotary.rotation,
        *where,
        H=heads,
        K=key_heads,
        WIDTH=width,
        HALF=power_of_2(width // 2),
        NORMED=normed,
        PAGE=PAGE,
        num_warps=1,
    )
    return rotated


def _attended(query: Tensor, key_heads: int, places: Places, where: tuple[object, ...]) -> Tensor:
    """[B, H * d] attention of queries to the pages."""
    from posttrain.kernels import _triton

    rows, heads, width = query.shape
    tile = tiles(heads // key_heads, width, query.element_size())
    splits = -(-places.page_BP.shape[1] * PAGE // SPLIT)
    out = query.new_empty(rows, heads * width)
    alone = splits == 1
    partial, largest, total = [out] * 3 if alone else _partial(rows, heads, splits, width, query.device)
    _triton.attend[(rows, key_heads, splits)](
        query,
        out,
        partial,
        largest,
        total,
        *where,
        splits,
        width**-0.5,
        H=heads,
        K=key_heads,
        WIDTH=width,
        **tile,
        SPLIT=SPLIT,
        ALONE=alone,
        WIDE=interpreted() and query.dtype == torch.bfloat16,
        PAGE=PAGE,
        num_warps=4,
        num_stages=2,
    )
    if not alone:
        _triton.combine[(rows, heads)](
            out,
            partial,
            largest,
            total,
            places.position_B,
            splits,
            H=heads,
            WIDTH=width,
            D=tile["D"],
            SPLIT=SPLIT,
            num_warps=1,
        )
    return out


def _partial(rows: int, heads: int, splits: int, width: int, device: torch.device) -> list[Tensor]:
    """Results of the splits of each row and head: weighted sums of values, largest scores, sums of weights."""
    shape = (rows, heads, splits)
    return [torch.empty(*size, dtype=torch.float32, device=device) for size in ((*shape, width), shape, shape)]


def tiles(group: int, width: int, item_bytes: int) -> dict[str, int]:
    """Tile sizes of `_triton.attend`: products need at least 16 rows, columns and terms."""
    padded = max(16, power_of_2(width))
    tokens = min(64, max(16, _TILE_BYTES // (padded * item_bytes)))
    return {"D": padded, "GROUP": max(16, power_of_2(group)), "BLOCK": tokens}


def power_of_2(number: int) -> int:
    """The next power of two."""
    return 1 << max(0, number - 1).bit_length()
