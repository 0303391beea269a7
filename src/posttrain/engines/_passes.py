"""How prompts are divided into forward passes.

L tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
import torch

from posttrain.policies import Packed
from posttrain.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive tokens, with a vector each where the model takes them (`posttrain.types.Segment.vectors`)."""

    token_ids: IntArray
    vectors: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.token_ids)

    def __getitem__(self, part: slice) -> "Piece":
        return Piece(self.token_ids[part], None if self.vectors is None else self.vectors[part])


def passes(
    prompts: Sequence[tuple[int, Piece]], limit: int, together: int | None = None
) -> Iterator[list[tuple[int, Piece]]]:
    """Group prompts, in order, so that no pass has more than `limit` tokens, and none of several prompts more than
    `together`; a longer prompt takes several passes.

    A prompt is split by its own length alone, so that its computation does not depend on the other prompts; and not
    before its last token, since one token alone is decoded.
    """
    batch: list[tuple[int, Piece]] = []
    room = together = together or limit
    for slot, prompt in prompts:
        begins = list(range(0, len(prompt), limit))
        if len(begins) > 1 and len(prompt) - begins[-1] == 1 and limit > 2:
            begins[-1] -= 1
        for begin, end in pairwise([*begins, len(prompt)]):
            piece = prompt[begin:end]
            if batch and len(piece) > room:
                yield batch
                batch, room = [], together
            batch.append((slot, piece))
            room -= len(piece)
    if batch:
        yield batch


def pack(pieces: Sequence[Piece], device: torch.device) -> Packed:
    """Lay pieces end to end; those without vectors get zeros where others have some."""
    token_ids_L = torch.from_numpy(np.concatenate([piece.token_ids for piece in pieces])).to(device)
    starts = (0, *accumulate(map(len, pieces)))
    width = next((piece.vectors.shape[1] for piece in pieces if piece.vectors is not None), None)
    if width is None:
        return Packed(token_ids_L=token_ids_L, starts=starts)
    parts = [np.zeros((len(p), width), np.float32) if p.vectors is None else p.vectors for p in pieces]
    vectors_LD = torch.from_numpy(np.concatenate(parts)).to(device)
    return Packed(token_ids_L=token_ids_L, starts=starts, vectors_LD=vectors_LD)
