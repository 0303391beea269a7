"""TIES: task arithmetic on the largest entries of the differences, where models agree on the sign.

Source: Yadav et al. 2023, arXiv:2306.01708, and the release of Wu et al. 2025, arXiv:2503.20641, for long-to-short
reasoning. Of each difference d_k = theta_k - theta_0 the `rate` smallest entries are dropped; at each place the sign is
that of the sum over the models (0 counts as plus); entries of that sign are averaged over the models that have a
non-zero one; the result is theta_0 + alpha times that.

How many of n entries are kept, both as published: the release drops those below the int(rate n)-th smallest, which
stays itself, so n - int(rate n) + 1; mergekit keeps int((1 - rate) n), one or two fewer, and at least one. Entries that
are as large as the last kept one are kept too. Rate 0 drops none. In the paper's text the rate is called k.

Differs: with ``scope: model`` entries are compared as float32.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.merges import Merge, Survey, Whole
from posttrain.components.merges._differences import check_base

if TYPE_CHECKING:
    import torch

ROWS: Final = (292,)
_BINS: Final = 1 << 16


@frozen
class TIES(Merge):
    """theta_0 + alpha mean of the trimmed differences of the elected sign."""

    rate: Annotated[float, Field(ge=0.0, le=1.0)] = 0.8
    """Share of the entries of each difference that is dropped (0.8 at 1.5B and 7B, 0.2 at 14B, 0.25 at 32B)."""
    alpha: float = 1.0
    """Multiple of the result that is added to the base (1 at 1.5B and 7B, 0.5 at 14B, 0.55 at 32B)."""
    count: Literal["release", "mergekit"] = "release"
    """Which of the two published numbers of kept entries."""
    scope: Literal["tensor", "model"] = "tensor"
    """Whether entries are ranked in each tensor, or over the whole model, where a sign of 0 is then that of the most
    places."""

    def check(self, count: int) -> None:
        """There must be a model beside the base."""
        check_base(self.kind, count)

    def at(self, coefficient: float) -> Self:
        """With another alpha."""
        return replace(self, alpha=coefficient)

    def kept(self, size: int) -> int:
        """How many of `size` entries are kept."""
        dropped = int(self.rate * size)
        if not dropped:
            return size
        return size - dropped + 1 if self.count == "release" else max(1, int(round(1.0 - self.rate, 12) * size))

    def survey(self, whole: Whole) -> Survey:
        """Over the whole model: the smallest kept entry of each difference, and the sign of the most places."""
        if self.scope == "tensor":
            return {}
        limits = self._limits(whole)
        signs = 0.0
        for _, tensors in whole.tensors():
            total = sum((_trimmed(d, limit) for d, limit in zip(_differences(tensors), limits, strict=True)), 0.0)
            assert not isinstance(total, float), "there is a model beside the base"
            signs += float(total.sign().sum())
        return {"limits": limits, "sign": 1.0 if signs >= 0 else -1.0}

    def _limits(self, whole: Whole) -> list[float]:
        """For each difference its smallest kept entry, exactly: by the upper half of the bits of its float32, then by
        the lower half of those with the same upper half.
        """
        size, upper = 0, np.zeros((0, _BINS), np.int64)
        for _, tensors in whole.tensors():
            size += tensors[0].numel()
            upper = np.zeros((len(tensors) - 1, _BINS), np.int64) if not len(upper) else upper
            for row, bits in zip(upper, _bits(tensors), strict=True):
                row += np.bincount(bits >> 16, minlength=_BINS)
        kept = self.kept(size)
        places = [_rank(row, kept) for row in upper]
        lower = np.zeros_like(upper)
        for _, tensors in whole.tensors():
            for row, bits, (place, _) in zip(lower, _bits(tensors), places, strict=True):
                row += np.bincount(bits[bits >> 16 == place] & (_BINS - 1), minlength=_BINS)
        found = [place << 16 | _rank(row, rest)[0] for row, (place, rest) in zip(lower, places, strict=True)]
        return [float(np.uint32(bits).view(np.float32)) for bits in found]

    def __call__(self, name: str, tensors: "Sequence[torch.Tensor]", survey: Survey) -> "torch.Tensor":
        """Trim, elect, average, add."""
        import torch

        base = tensors[0]
        if self.alpha == 0.0:
            return base.clone()
        limits = survey.get("limits") or [None] * (len(tensors) - 1)
        total, counts = torch.zeros_like(base), None
        trimmed = []
        for difference, limit in zip(_differences(tensors), limits, strict=True):
            kept = _trimmed(difference, self._limit(difference) if limit is None else limit)
            total += kept
            trimmed.append(kept)
        if len(trimmed) > 1:
            sign = torch.where(total == 0, survey.get("sign", 1.0), total.sign())
            agreeing = [torch.where(kept * sign > 0, kept, 0.0) for kept in trimmed]
            counts = sum((kept != 0).to(base.dtype) for kept in agreeing)
            total = sum(agreeing[1:], agreeing[0]) / torch.as_tensor(counts).clamp(min=1)
        return total.mul_(self.alpha).add_(base)

    def _limit(self, difference: "torch.Tensor") -> float:
        """The smallest kept entry of a tensor."""
        dropped = difference.numel() - self.kept(difference.numel())
        if not dropped:
            return 0.0
        entries = difference.abs().flatten().cpu().numpy()
        entries.partition(dropped)
        return float(entries[dropped])


def _differences(tensors: "Sequence[torch.Tensor]") -> "list[torch.Tensor]":
    return [other - tensors[0] for other in tensors[1:]]


def _trimmed(difference: "torch.Tensor", limit: float) -> "torch.Tensor":
    """The same without entries smaller than the limit; changed in place."""
    return difference.masked_fill_(difference.abs() < limit, 0.0)


def _bits(tensors: "Sequence[torch.Tensor]") -> "Iterator[np.ndarray[Any, np.dtype[np.int32]]]":
    """The bits of the size of every entry of each difference as float32, which have the same order as the numbers."""
    for difference in _differences(tensors):
        yield difference.abs().flatten().float().cpu().numpy().view(np.int32)


def _rank(counts: "np.ndarray[Any, np.dtype[np.int64]]", rank: int) -> tuple[int, int]:
    """The bin that has the entry of this rank from the top, counted from 1, and its rank in the bin."""
    above = np.cumsum(counts[::-1])
    place = int(np.searchsorted(above, rank))
    return len(counts) - 1 - place, rank - int(above[place - 1] if place else 0)
