"""The layout of a packed batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """Sequences laid end to end, some of which continue a shared prefix sequence. int64 tensors."""

    begin: Tensor
    """[N + 1] first rows."""
    after: Tensor
    """[N] the prefix sequence of each, which has no prefix itself; -1 for none."""
    family: Tensor
    """[F + 1] offsets into `order`: a sequence without a prefix, then all that continue it."""
    order: Tensor
    """[N] sequences, family by family."""

    @classmethod
    def of(cls, starts: Sequence[int], after: Sequence[int]) -> "PackedLayout":
        """The layout of N sequences from N + 1 first rows, and the prefix of each."""
        families: dict[int, list[int]] = {i: [i] for i, before in enumerate(after) if before < 0}
        for i, before in enumerate(after):
            if before >= 0:
                families[before].append(i)
        ends = accumulate((len(family) for family in families.values()), initial=0)
        order = [i for family in families.values() for i in family]
        return cls(*(torch.tensor(list(given)) for given in (starts, after, ends, order)))
