"""Kernels of one decoding step on a GPU, in Triton's language. Imported only if Triton is installed (`kernels.paged`).

Keys and values lie in pages of ``PAGE`` tokens, [pages, PAGE, K, d] in one piece, whose addresses are numbers in
memory: pages may move between two runs of a captured graph. A row is one new token of a sequence at `position`, which
is also how many tokens the sequence holds before it. A row at a negative position is padding: nothing is read for it,
and nothing written but zeros for its attention.

H query heads, K key heads, G = H / K query heads of a key head, d width of a head.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _pages_of(address, element: tl.constexpr):
    """A pointer to pages from their address; torch aligns memory to 512 bytes."""
    return tl.multiple_of(address.to(tl.pointer_type(element)), 16)


@triton.jit
def _rotated(a, b, cosine, sine, element: tl.constexpr):
    """The two halves of a head rotated, rounded where torch's operations on this type round (`kernels.rotate`)."""
    up: tl.constexpr = tl.float32
    a, b = a.to(element).to(up), b.to(element).to(up)
    ac, bs = (a * cosine).to(element).to(up), (b * sine).to(element).to(up)
    bc, as_ = (b * cosine).to(element).to(up), (a * sine).to(element).to(up)
    return ac - bs, bc + as_


@triton.jit(do_not_specialize=["table_stride"])
def rotate_and_store(
    query, key, value, rotated, query_norm, key_norm, eps, cosine, sine, position_B, page_BP, table_stride,
    address,
    H: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr, HALF: tl.constexpr, NORMED: tl.constexpr,
    PAGE: tl.constexpr,
):  # fmt: skip
    """Normalize and rotate query and key heads of each row; write keys and values into pages, queries into `rotated`.

    A program for each row and head: H of queries, K of keys, K of values. `HALF` is d / 2 rounded up to a power of two;
    `address` points to the addresses of the layer's keys and values.
    """
    element: tl.constexpr = query.dtype.element_ty
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    position = tl.load(position_B + row)
    half: tl.constexpr = WIDTH // 2
    first = tl.arange(0, HALF)
    inside = first < half
    if head < H:
        source = query + (row * H + head) * WIDTH
    elif head < H + K:
        source = key + (row * K + head - H) * WIDTH
    else:
        source = value + (row * K + head - H - K) * WIDTH
    a = tl.load(source + first, mask=inside, other=0.0)
    b = tl.load(source + half + first, mask=inside, other=0.0)
    if head < H + K:
        x, y = a.to(tl.float32), b.to(tl.float32)
        if NORMED:
            rstd = tl.rsqrt((tl.sum(x * x) + tl.sum(y * y)) / WIDTH + eps)
            weight = query_norm if head < H else key_norm
            x = x * rstd * tl.load(weight + first, mask=inside, other=0.0).to(tl.float32)
            y = y * rstd * tl.load(weight + half + first, mask=inside, other=0.0).to(tl.float32)
        angle = tl.maximum(position, 0).to(tl.int64) * half + first
        c = tl.load(cosine + angle, mask=inside, other=0.0).to(element).to(tl.float32)
        s = tl.load(sine + angle, mask=inside, other=0.0).to(element).to(tl.float32)
        x, y = _rotated(x, y, c, s, element)
        a, b = x.to(element), y.to(element)
    if head < H:
        target = rotated + (row * H + head) * WIDTH
        tl.store(target + first, a, mask=inside)
        tl.store(target + half + first, b, mask=inside)
    else:
        held = position >= 0
        page = tl.load(page_BP + row * table_stride + position // PAGE, mask=held, other=0).to(tl.int64)
        is_value = (head >= H + K).to(tl.int64)
        pages = _pages_of(tl.load(address + is_value), element)
        place = (page * PAGE + position % PAGE) * K + (head - H) % K
        tl.store(pages + place * WIDTH + first, a, mask=inside & held)
        tl.store(pages + place * WIDTH + half + first, b, mask=inside & held)


@triton.jit(do_not_specialize=["table_stride", "splits"])
def attend(
    query, out, partial, partial_max, partial_sum, position_B, page_BP, table_stride, address, splits, scale,
    H: tl.constexpr, K: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, GROUP: tl.constexpr,
    BLOCK: tl.constexpr, SPLIT: tl.constexpr, ALONE: tl.constexpr, WIDE: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Attention of each row's query heads to the tokens of its sequence, its own included.

    A program for each row, key head and split of `SPLIT` tokens: it has the G query heads of its key head in `GROUP`
    rows of a product. Numbers depend on the row's own tokens only. With one split (`ALONE`) it writes `out` [B, H, d];
    else sums of weights and values, [B, H, splits] and [.., d] in float32, that `combine` adds up. `D` is d rounded up
    to a power of two. `WIDE` has products of numbers in float32, for the interpreter, which has none of bfloat16.
    """
    element: tl.constexpr = query.dtype.element_ty
    factor: tl.constexpr = tl.float32 if WIDE else element
    G: tl.constexpr = H // K
    row, head, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    length = tl.load(position_B + row) + 1
    begin = split * SPLIT
    d, g = tl.arange(0, D), tl.arange(0, GROUP)
    within_d, within_g = d < WIDTH, g < G
    heads = row * H + head * G + g
    both = within_g[:, None] & within_d[None, :]
    if (begin < length) | ALONE:
        end = tl.minimum(begin + SPLIT, length)
        q = tl.load(query + heads[:, None] * WIDTH + d[None, :], mask=both, other=0.0)
        keys, values = _pages_of(tl.load(address), element), _pages_of(tl.load(address + 1), element)
        largest = tl.full([GROUP], float("-inf"), tl.float32)
        total = tl.zeros([GROUP], tl.float32)
        acc = tl.zeros([GROUP, D], tl.float32)
        for start in range(begin, end, BLOCK):
            token = start + tl.arange(0, BLOCK)
            held = token < end
            page = tl.load(page_BP + row * table_stride + token // PAGE, mask=held, other=0).to(tl.int64)
            place = ((page * PAGE + token % PAGE) * K + head) * WIDTH
            there = held[:, None] & within_d[None, :]
            k = tl.load(keys + place[:, None] + d[None, :], mask=there, other=0.0)
            scores = tl.dot(q.to(factor), tl.trans(k.to(factor)), input_precision="ieee") * (scale * LOG2_E)
            scores = tl.where(held[None, :], scores, float("-inf"))
            now = tl.maximum(largest, tl.max(scores, 1))
            weights = tl.exp2(scores - now[:, None])
            before = tl.exp2(largest - now)
            v = tl.load(values + place[:, None] + d[None, :], mask=there, other=0.0)
            total = total * before + tl.sum(weights, 1)
            acc = tl.dot(weights.to(element).to(factor), v.to(factor), acc * before[:, None], input_precision="ieee")
            largest = now
        if ALONE:
            y = acc / tl.where(total == 0.0, 1.0, total)[:, None]
            tl.store(out + heads[:, None] * WIDTH + d[None, :], y.to(element), mask=both)
        else:
            place = heads * splits + split
            tl.store(partial_max + place, largest, mask=within_g)
            tl.store(partial_sum + place, total, mask=within_g)
            tl.store(partial + place[:, None] * WIDTH + d[None, :], acc, mask=both)


@triton.jit(do_not_specialize=["splits"])
def combine(
    out,
    partial,
    partial_max,
    partial_sum,
    position_B,
    splits,
    H: tl.constexpr,
    WIDTH: tl.constexpr,
    D: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """The splits of each row and head to `out` [B, H, d], in their order: as many as the row's own tokens take."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    length = tl.load(position_B + row) + 1
    d = tl.arange(0, D)
    inside = d < WIDTH
    first = (row * H + head) * splits
    largest, total = float("-inf"), 0.0
    acc = tl.zeros([D], tl.float32)
    for split in range((length + SPLIT - 1) // SPLIT):
        top = tl.load(partial_max + first + split)
        now = tl.maximum(largest, top)
        before, here = tl.exp2(largest - now), tl.exp2(top - now)
        total = total * before + tl.load(partial_sum + first + split) * here
        more = tl.load(partial + (first + split) * WIDTH + d, mask=inside, other=0.0)
        acc = acc * before + more * here
        largest = now
    y = acc / tl.where(total == 0.0, 1.0, total)
    tl.store(out + (row * H + head) * WIDTH + d, y.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _logits(logits, row, columns, first, BLOCK: tl.constexpr):
    """A block of a row's logits in float64, minus infinity beyond the row and for NaN; their ids; how many are NaN."""
    token = first + tl.arange(0, BLOCK)
    x = tl.load(logits + row * columns + token, mask=token < columns, other=float("-inf")).to(tl.float32)
    x = x.to(tl.float64)
    return tl.where(x != x, float("-inf"), x), token, tl.sum((x != x).to(tl.int32))


@triton.jit(do_not_specialize=["columns", "blocks"])
def largest_logits(logits, columns, blocks, largest, at, broken, BLOCK: tl.constexpr):
    """The largest of each block of a row, its first id, and how many are NaN: [B, blocks] each."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    x, token, nans = _logits(logits, row, columns, block * BLOCK, BLOCK)
    top = tl.max(x, 0)
    place = row * blocks + block
    tl.store(largest + place, top)
    tl.store(at + place, tl.min(tl.where(x == top, token, columns), 0))
    tl.store(broken + place, nans)


@triton.jit(do_not_specialize=["columns", "blocks"])
def sums_of_weights(
    logits, columns, blocks, largest, temperature, sums, energies, BLOCK: tl.constexpr, BLOCKS: tl.constexpr
):
    """The sum of each block's weights e^x, relative to the likeliest token of the row, and that of their products with
    x: float64 [B, blocks].
    """
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    every = tl.arange(0, BLOCKS)
    top = tl.max(tl.load(largest + row * blocks + every, mask=every < blocks, other=float("-inf")), 0)
    given = tl.load(temperature + row)
    by = tl.where(given == 0.0, 1.0, given)
    x, _, _ = _logits(logits, row, columns, block * BLOCK, BLOCK)
    x = (x - top) / by
    weight = tl.exp(x)
    tl.store(sums + row * blocks + block, tl.sum(weight, 0))
    tl.store(energies + row * blocks + block, tl.sum(tl.where(weight > 0.0, weight * x, 0.0), 0))


@triton.jit(do_not_specialize=["columns", "blocks"])
def chosen_tokens(
    logits,
    columns,
    blocks,
    largest,
    at,
    broken,
    sums,
    energies,
    temperature,
    uniform,
    tokens,
    logps,
    entropies,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    """The token of each row at which the running sum of the weights exceeds the draw, its log-probability, and the
    row's entropy.

    First the block is found, then the place in the block: the last possible one, if rounding leaves none.
    """
    row = tl.program_id(0).to(tl.int64)
    every = tl.arange(0, BLOCKS)
    there = every < blocks
    tops = tl.load(largest + row * blocks + every, mask=there, other=float("-inf"))
    top = tl.max(tops, 0)
    nans = tl.sum(tl.load(broken + row * blocks + every, mask=there, other=0), 0)
    first_block = tl.min(tl.where((tops == top) & there, every, BLOCKS - 1), 0)
    given = tl.load(temperature + row)
    by = tl.where(given == 0.0, 1.0, given)
    part = tl.load(sums + row * blocks + every, mask=there, other=0.0)
    total = tl.sum(part, 0)
    target = tl.load(uniform + row) * total
    block = tl.min(tl.where((tl.cumsum(part, 0) > target) & (part > 0.0), every, BLOCKS), 0)
    block = tl.where(block == BLOCKS, tl.max(tl.where(part > 0.0, every, 0), 0), block)
    before = tl.sum(tl.where(every < block, part, 0.0), 0)
    x, token, _ = _logits(logits, row, columns, block * BLOCK, BLOCK)
    weight = tl.exp((x - top) / by)
    drawn = tl.min(tl.where((before + tl.cumsum(weight, 0) > target) & (weight > 0.0), token, columns), 0)
    drawn = tl.where(drawn == columns, tl.max(tl.where(weight > 0.0, token, 0), 0), drawn)
    greedy = tl.load(at + row * blocks + first_block)
    sound = (nans == 0) & (top < float("inf")) & (top > float("-inf"))
    choice = tl.where((given == 0.0) | (sound == 0), greedy, drawn)
    choice = tl.minimum(choice, columns - 1)
    logit = tl.load(logits + row * columns + choice).to(tl.float32).to(tl.float64)
    logp = (logit - top) / by - tl.log(total)
    tl.store(tokens + row, choice.to(tl.int64))
    energy = tl.sum(tl.load(energies + row * blocks + every, mask=there, other=0.0), 0)
    tl.store(logps + row, tl.where(sound, logp, float("nan")))
    tl.store(entropies + row, tl.where(sound, tl.log(total) - energy / total, float("nan")))


@triton.jit(do_not_specialize=["columns"])
def signals(logits, columns, tokens, scale, logps, entropies, totals, BLOCK: tl.constexpr):
    """Of each row of logits times `scale`: the log-probability of its token, its entropy, and the log of the sum of all
    weights, in float32. A program for each row, which adds blocks in order.
    """
    row = tl.program_id(0).to(tl.int64)
    start = logits + row * columns
    top, total, energy = float("-inf"), 0.0, 0.0
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(start + at, mask=at < columns, other=float("-inf")).to(tl.float32) * scale
        now = tl.maximum(top, tl.max(x, 0))
        by = tl.where(now == float("-inf"), 0.0, now)  # a block without any possible token adds nothing
        weight = tl.exp(x - by)
        before = tl.exp(top - by)
        # Energies are those of x - by, so that they stay small: of a block before, they move with its largest logit.
        moved = tl.where(total > 0.0, energy + total * (top - by), 0.0)
        energy = moved * before + tl.sum(tl.where(weight == 0.0, 0.0, weight * (x - by)), 0)
        total = total * before + tl.sum(weight, 0)
        top = now
    log_total = tl.log(total)
    token = tl.load(tokens + row)
    there = (token >= 0) & (token < columns)
    own = tl.load(start + token, mask=there, other=float("nan")).to(tl.float32) * scale
    tl.store(logps + row, own - top - log_total)
    tl.store(entropies + row, log_total - energy / total)
    tl.store(totals + row, top + log_total)


@triton.jit(do_not_specialize=["columns"])
def signals_gradient(
    logits, columns, tokens, scale, totals, entropies, of_logp, of_entropy, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of `signals` by the logits, in their place. A program for each row and block."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    place = logits + row * columns + at
    x = tl.load(place, mask=inside, other=float("-inf"))
    logp = x.to(tl.float32) * scale - tl.load(totals + row)
    p = tl.exp(logp)
    by_logp, by_entropy = tl.load(of_logp + row), tl.load(of_entropy + row)
    chosen = (at == tl.load(tokens + row)).to(tl.float32)
    surprise = tl.where(p == 0.0, 0.0, p * (logp + tl.load(entropies + row)))
    grad = (by_logp * (chosen - p) - by_entropy * surprise) * scale
    tl.store(place, grad.to(x.dtype), mask=inside)
