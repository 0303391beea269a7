"""Causal attention over packed tokens and over a cache, without any effect of one sequence on another.

The linear layers see one flat list of tokens. Here each sequence is laid out in a padded block whose length is a
function of that sequence alone (`padded_length`), so that the kernels round its numbers in the same way whatever else
is in the batch; sequences of equal padded length share a block.

R rows (tokens, and padding up to a multiple of `ROWS`), B sequences of a block, Q new tokens of each, S attended
tokens, H query heads, K key-value heads, d width of a head.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature
from itertools import accumulate
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from posttrain import kernels
from posttrain.kernels import PackedLayout
from posttrain.policies import Packed
from posttrain.policies._cache import KeyValueCache

ROWS = 16
"""Rows are padded to a multiple of this: matrix products of fewer rows, and the last elements of a tensor whose size is
no multiple of the vector width, are rounded differently on CPUs."""
DECODE_STEP = 64
"""Where kernels of our own do not do it, the attended length is rounded up to a multiple of this."""


def pad_rows(x: Tensor) -> Tensor:
    """Append zero rows until there are a multiple of `ROWS`."""
    missing = -len(x) % ROWS
    return torch.cat((x, x.new_zeros(missing, *x.shape[1:]))) if missing else x


def first_rows(x: Tensor, count: int) -> Tensor:
    """The rows before those that `pad_rows` appended; `x` itself where there are none, since the gradient of a part
    is made by filling and copying a whole.
    """
    return x if len(x) == count else x[:count]


def token_positions(past: Sequence[int], lengths: Sequence[int]) -> Tensor:
    """[L] position of each new token in its sequence, where sequences have `past` tokens already."""
    length_N = torch.tensor(lengths)
    first_N = torch.tensor(past) - (length_N.cumsum(0) - length_N)
    return first_N.repeat_interleave(length_N) + torch.arange(sum(lengths))


def padded_length(length: int) -> int:
    """The block length for a sequence: a multiple of 32, at most an eighth longer than it beyond 256 tokens."""
    step = max(32, 1 << max(0, length.bit_length() - 4))
    return -(-length // step) * step


class Block(Protocol):
    """Sequences that are attended together; returns their outputs [B * Q, H * d] in block order."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend; query is [R, H, d], key and value are [R, K, d]."""
        ...


@dataclass(frozen=True, slots=True)
class SelfBlock:
    """Sequences that attend to themselves."""

    row_BQ: Tensor
    """Flat [B * Q] rows; the padding of a sequence repeats its last row, which no real query sees."""
    size: int

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend within the rows that were given."""
        q, k, v = (
            x.index_select(0, self.row_BQ).view(-1, self.size, *x.shape[1:]).transpose(1, 2)
            for x in (query, key, value)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return out.transpose(1, 2).flatten(2).flatten(0, 1)


@dataclass(frozen=True, slots=True)
class VariableBlock:
    """All sequences at once without padding, by flash attention on a GPU."""

    starts: Tensor
    """int32 [N + 1] offsets of queries."""
    key_starts: Tensor
    """int32 [N + 1] offsets of keys: those of what comes before a sequence are among its own."""
    key_rows: Tensor | None
    """int64 rows of the keys, where any sequence comes after another."""
    tokens: int
    longest: int
    longest_keys: int

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend within the rows that were given; the kernel would leave garbage in those of the padding."""
        taken = slice(self.tokens) if self.key_rows is None else self.key_rows
        out: Tensor = variable_attention()(
            query[: self.tokens],
            key[taken],
            value[taken],
            self.starts,
            self.key_starts,
            self.longest,
            self.longest_keys,
            window_size=(-1, 0),
            enable_gqa=query.shape[1] != key.shape[1],
        )
        return pad_rows(out.flatten(1))


@dataclass(frozen=True, slots=True)
class KernelBlock:
    """Sequences of any lengths without padding, by a kernel on a CPU."""

    layout: PackedLayout
    row_T: Tensor | None = None
    """The rows of these sequences; None where they are all."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend within the rows that were given."""
        if self.row_T is not None:
            query, key, value = (x.index_select(0, self.row_T) for x in (query, key, value))
        return kernels.packed_attention(query, key, value, self.layout)


@dataclass(frozen=True, slots=True)
class ContinuedBlock:
    """Sequences of which a cache holds the first tokens, by a kernel on a CPU, as if they were computed whole."""

    cache: KeyValueCache
    begin: Tensor
    page_BP: Tensor
    length_B: Tensor
    row_T: Tensor | None
    """The rows of these sequences; None where they are all."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend to the cache and within the rows that were given."""
        if self.row_T is not None:
            query, key, value = (x.index_select(0, self.row_T) for x in (query, key, value))
        held = self.cache.keys[layer], self.cache.values[layer]
        return kernels.continued_attention(query, key, value, self.begin, *held, self.page_BP, self.length_B)


@dataclass(frozen=True, slots=True)
class CachedBlock:
    """Sequences whose new tokens attend to everything that their slots hold, the new tokens included."""

    cache: KeyValueCache
    page_BP: Tensor
    row_BQ: Tensor
    size: int
    bias_B1QS: Tensor
    """0 where a query may attend, minus infinity elsewhere."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend to the cache, which holds the given keys and values already."""
        k, v = self.cache.read(layer, self.page_BP)
        q = query.index_select(0, self.row_BQ)
        if self.size == 1:  # The query heads that share a key head take the place of the queries.
            q = q.view(len(q), k.shape[1], -1, q.shape[2])
            return F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias_B1QS).flatten(1)
        q = q.view(-1, self.size, *q.shape[1:]).transpose(1, 2)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias_B1QS, enable_gqa=q.shape[1] != k.shape[1])
        return out.transpose(1, 2).flatten(2).flatten(0, 1)


Attends = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""[R, H * d] of a layer's number, query [R, H, d], key and value [R, K, d]."""


class Attend:
    """The attention of one forward pass: index tensors are built once here, and used by every layer."""

    def __init__(self, blocks: Sequence[Block], place_R: Tensor | None) -> None:
        self.blocks = blocks
        self.place_R = place_R
        """Position of each row in the blocks' outputs; None if one block has all rows in order."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[R, H * d] from query [R, H, d], key and value [R, K, d]."""
        outputs = [block(layer, query, key, value) for block in self.blocks]
        return outputs[0] if self.place_R is None else torch.cat(outputs).index_select(0, self.place_R)


class Watching:
    """The attention of one sequence, which also keeps how much its last token attends to each."""

    def __init__(self, attend: Attends, length: int, layers: int) -> None:
        self.attend, self.length, self.layers = attend, length, layers
        self.found: list[Tensor] = []
        """[L] of each of the first `layers` layers, the mean over its heads."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[R, H * d] from query [R, H, d], key and value [R, K, d]."""
        if layer < self.layers:
            key_LKd = key[: self.length].float()
            query_KGd = query[self.length - 1].float().view(key_LKd.shape[1], -1, key_LKd.shape[2])
            logit_KGL = torch.einsum("kgd,lkd->kgl", query_KGd, key_LKd) / math.sqrt(key_LKd.shape[2])
            self.found.append(logit_KGL.softmax(-1).mean((0, 1)))
        return self.attend(layer, query, key, value)


class AttendCached(Attend):
    """The attention of a forward pass that adds to a cache."""

    def __init__(
        self, blocks: Sequence[Block], place_R: Tensor | None, cache: KeyValueCache, places: tuple[Tensor, Tensor]
    ) -> None:
        super().__init__(blocks, place_R)
        self.cache = cache
        self.places = places

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[R, H * d] from query [R, H, d], key and value [R, K, d]."""
        self.cache.write(layer, self.places, key, value)
        return super().__call__(layer, query, key, value)


class AttendDecoding:
    """The attention of one new token of each sequence, by a kernel that also adds them to the cache."""

    def __init__(self, cache: KeyValueCache, slots: Sequence[int], like: Tensor) -> None:
        self.cache, self.rows = cache, len(like)
        self.length_B = torch.from_numpy(cache.lengths[list(slots)])
        self.page_BP = torch.from_numpy(cache.table(slots, int(self.length_B.max()) + 1))

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[R, H * d] from query [R, H, d], key and value [R, K, d]; zeros for rows of the padding."""
        out = query.new_empty(self.rows, query.shape[1] * query.shape[2])
        out[len(self.length_B) :] = 0.0
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        kernels.decode_attention(query, key, value, keys, values, self.page_BP, self.length_B, out)
        return out


class Layout:
    """Collects blocks, and the position of each row in their outputs."""

    def __init__(self, lengths: Sequence[int], rows: int, device: torch.device) -> None:
        self.device = device
        self.start_N = torch.tensor([0, *accumulate(lengths)][:-1])
        self.length_N = torch.tensor(list(lengths))
        self.blocks: list[Block] = []
        self.place_R = torch.zeros(rows, dtype=torch.int64)
        self.filled = 0

    def rows(self, members: Sequence[int], size: int) -> Tensor:
        """[B, Q] rows of some sequences, each padded to `size` with its last row; books their place in the output."""
        begin_B1, length_B1 = self.start_N[members, None], self.length_N[members, None]
        column_1Q = torch.arange(size)[None]
        row_BQ = begin_B1 + torch.minimum(column_1Q, length_B1 - 1)
        real_BQ = column_1Q < length_B1
        self.place_R[row_BQ[real_BQ]] = self.filled + real_BQ.flatten().nonzero()[:, 0]
        self.filled += row_BQ.numel()
        return row_BQ

    def add_self(self, members: Iterable[int]) -> None:
        """Blocks for sequences that attend to themselves, one for each padded length."""
        by_size: dict[int, list[int]] = defaultdict(list)
        for i in members:
            by_size[padded_length(int(self.length_N[i]))].append(i)
        for size, same in by_size.items():
            self.blocks.append(SelfBlock(self.rows(same, size).flatten().to(self.device), size))

    def add_packed(self, members: Sequence[int]) -> None:
        """A block for sequences that attend to themselves, by the kernel."""
        starts, row_T = self.flat(members)
        self.blocks.append(KernelBlock(PackedLayout.of(starts, [-1] * len(members)), row_T))

    def add_continued(self, members: Sequence[int], cache: KeyValueCache, slots: Sequence[int]) -> None:
        """A block for sequences that go on after what their slots hold, by the kernel."""
        starts, row_T = self.flat(members)
        length_B = torch.from_numpy(cache.lengths[list(slots)])
        page_BP = torch.from_numpy(cache.table(slots, int(length_B.max())))
        self.blocks.append(ContinuedBlock(cache, torch.tensor(starts), page_BP, length_B, row_T))

    def flat(self, members: Sequence[int]) -> tuple[list[int], Tensor]:
        """Where each of some sequences begins among their rows, and these rows; books their place in the output."""
        starts = [0, *accumulate(int(self.length_N[i]) for i in members)]
        row_T = torch.cat([torch.arange(int(self.length_N[i])) + self.start_N[i] for i in members])
        self.place_R[row_T] = self.filled + torch.arange(len(row_T))
        self.filled += len(row_T)
        return starts, row_T

    def add_cached(
        self, members: Sequence[int], size: int, attended: int, cache: KeyValueCache, slots: Sequence[int]
    ) -> None:
        """A block for sequences of up to `size` new tokens after those that their slots hold."""
        row_BQ = self.rows(members, size)
        held_B1 = torch.from_numpy(cache.lengths[list(slots)])[:, None]
        last_BQ = held_B1 + row_BQ - self.start_N[members, None]
        bias = torch.zeros(*row_BQ.shape, attended, dtype=cache.keys[0].dtype)
        bias.masked_fill_(torch.arange(attended) > last_BQ[..., None], -torch.inf)
        page_BP = torch.from_numpy(cache.table(slots, attended).astype(np.int64)).to(self.device)
        row = row_BQ.flatten().to(self.device)
        self.blocks.append(CachedBlock(cache, page_BP, row, size, bias[:, None].to(self.device)))


def attends_after(like: Tensor) -> bool:
    """Whether `attend_packed` takes sequences that come after others, for rows like those of a tensor."""
    return kernels.usable(like) or _varies(like)


def _varies(like: Tensor) -> bool:
    half = like.dtype in (torch.bfloat16, torch.float16)
    return half and like.device.type == "cuda" and variable_attention() is not None


def attend_packed(packed: Packed, x_RD: Tensor) -> Attend:
    """Attention of packed sequences to themselves and to what they come after, for rows of which the last may be
    padding.
    """
    lengths, rows, device = packed.lengths, len(x_RD), x_RD.device
    if kernels.usable(x_RD):
        layout = PackedLayout.of(packed.starts, packed.after or [-1] * len(lengths))
        return Attend([KernelBlock(layout)], None)
    if _varies(x_RD) and any(lengths):
        return Attend([_variable_block(packed, device)], None)
    assert packed.after is None, "callers check attends_after"
    blocks = Layout(lengths, rows, device)
    blocks.add_self(i for i, length in enumerate(lengths) if length)
    return Attend(blocks.blocks, blocks.place_R.to(device))


def _variable_block(packed: Packed, device: torch.device) -> VariableBlock:
    total = [p + n for p, n in zip(packed.past, packed.lengths, strict=True)]
    starts, key_starts = (
        torch.tensor(offsets, dtype=torch.int32, device=device) for offsets in (packed.starts, [0, *accumulate(total)])
    )
    key_rows = None
    if packed.after is not None:
        spans = [range(begin, end) for begin, end in zip(packed.starts, packed.starts[1:], strict=False)]
        rows = [row for i, j in enumerate(packed.after) for k in (j, i) if k >= 0 for row in spans[k]]
        key_rows = torch.tensor(rows, device=device)
    return VariableBlock(starts, key_starts, key_rows, packed.starts[-1], max(packed.lengths), max(total))


def attend_cached(cache: KeyValueCache, slots: Sequence[int], lengths: Sequence[int], like: Tensor) -> Attends:
    """Attention of new tokens, sequence i in slot ``slots[i]``, to themselves and to what the slots hold, for rows
    like those of `like`, of which the last may be padding.

    How a sequence is computed depends on the sequence alone, never on the rest of the batch: a first prompt as in
    training, one token as a decoding step, several tokens after others as a continuation.
    """
    past = cache.lengths[list(slots)].tolist()
    total = [p + n for p, n in zip(past, lengths, strict=True)]
    cache.reserve(slots, total)
    if max(lengths) == 1 and min(past) > 0 and cache.for_kernel:
        return AttendDecoding(cache, slots, like)
    rows = len(like)
    layout = Layout(lengths, rows, cache.keys[0].device)
    first = [i for i, p in enumerate(past) if p == 0]
    if first and cache.for_kernel:
        layout.add_packed(first)
    else:
        layout.add_self(first)
    decoding = [i for i, p in enumerate(past) if p > 0 and lengths[i] == 1]
    if decoding:
        attended = -(-max(total[i] for i in decoding) // DECODE_STEP) * DECODE_STEP
        layout.add_cached(decoding, 1, attended, cache, [slots[i] for i in decoding])
    going_on = [i for i, p in enumerate(past) if p > 0 and lengths[i] > 1]
    if going_on and cache.for_kernel:
        layout.add_continued(going_on, cache, [slots[i] for i in going_on])
        going_on = []
    longer: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i in going_on:
        longer[padded_length(lengths[i]), -(-total[i] // DECODE_STEP) * DECODE_STEP].append(i)
    for (size, attended), same in longer.items():
        layout.add_cached(same, size, attended, cache, [slots[i] for i in same])
    slot_T = np.repeat(np.array(slots), lengths)
    places = cache.places(slot_T, token_positions(past, lengths).numpy())
    return AttendCached(layout.blocks, layout.place_R.to(layout.device), cache, places)


@cache
def variable_attention() -> Any:
    """Flash attention over packed sequences, where this torch has it in the form that is used here."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn if {"window_size", "enable_gqa"} <= signature(varlen_attn).parameters.keys() else None
