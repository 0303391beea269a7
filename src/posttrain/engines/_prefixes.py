"""Prefixes that sequences of one pass share, computed once (`Packed.after`).

Prompts of a judge often differ at the end only: a rubric, a question and two responses in both orders. Of the ways to
divide sorted sequences into neighbours that share their first tokens, the one with the fewest tokens is taken.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import torch

from posttrain.policies import Packed
from posttrain.types import IntArray

SHORTEST = 8
"""Tokens of the shortest prefix that is shared."""
NEIGHBOURS = 64
"""Most sequences that share one."""


def packed_once(
    sequences: Sequence[IntArray], device: torch.device, *, shares: bool = True
) -> tuple[Packed, list[int]]:
    """The sequences with shared prefixes there once if `shares`, and the row of the last token of each."""
    groups = divided(sequences) if shares else [([i], 0) for i in range(len(sequences))]
    parts: list[IntArray] = []
    after: list[int] = []
    place: dict[int, int] = {}  # by sequence, its own part
    for members, length in groups:
        prefix = len(parts) if length else -1
        if length:
            parts.append(sequences[members[0]][:length])
            after.append(-1)
        for member in members:
            place[member] = len(parts)
            parts.append(sequences[member][length:])
            after.append(prefix)
    starts = (0, *accumulate(map(len, parts)))
    token_ids_L = torch.from_numpy(np.concatenate(parts)).to(device)
    packed = Packed(token_ids_L=token_ids_L, starts=starts, after=tuple(after) if max(after) >= 0 else None)
    return packed, [starts[place[i] + 1] - 1 for i in range(len(sequences))]


def divided(sequences: Sequence[IntArray]) -> list[tuple[list[int], int]]:
    """Groups of sequences with the length of the prefix that each group shares; each keeps a token of its own."""
    order = sorted(range(len(sequences)), key=lambda i: sequences[i].tobytes())
    alike = [_alike(sequences[i], sequences[j]) for i, j in pairwise(order)]
    saved, begins = [0], [0]  # of the first k sequences: the tokens that are saved, and where the last group begins
    for k in range(1, len(order) + 1):
        best, begin, common = saved[k - 1], k - 1, len(sequences[order[k - 1]]) - 1
        for j in range(k - 2, max(k - 1 - NEIGHBOURS, -1), -1):
            common = min(common, alike[j], len(sequences[order[j]]) - 1)
            if common < SHORTEST:
                break
            if saved[j] + (k - 1 - j) * common > best:
                best, begin = saved[j] + (k - 1 - j) * common, j
        saved.append(best)
        begins.append(begin)
    groups, end = [], len(order)
    while end:
        members = order[begins[end] : end]
        own = min(len(sequences[i]) for i in members) - 1
        groups.append((members, min([own, *alike[begins[end] : end - 1]]) if len(members) > 1 else 0))
        end = begins[end]
    return groups[::-1]


def _alike(one: IntArray, other: IntArray) -> int:
    """Number of first tokens that are the same."""
    size = min(len(one), len(other))
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if len(differ) else size
