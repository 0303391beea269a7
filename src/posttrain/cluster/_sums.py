"""Sums of gradients over processes whose bits depend on no number of processes.

Slice k of an optimizer step is computed by process k mod W. Every process owns a shard of each gradient; after each
round of W slices all pieces of a shard go to its owner (all-to-all), who adds them up in the order of k. A sum is
therefore ((s0 + s1) + s2) + ..., as one process makes it, element by element; a reduction of torch's or of the network
would add in an order that depends on W. At the end the shards are gathered by process 0.

A weight that a slice does not use has no piece in it. It is left out and not added as zeros, since -0.0 + 0.0 is 0.0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from posttrain.errors import PosttrainError


class GroupBroken(PosttrainError):
    """A process of the group has ended, or has not answered in time."""


@dataclass(frozen=True)
class _Flat:
    """The gradients of one type, end to end."""

    names: tuple[str, ...]
    starts: tuple[int, ...]
    """len(names) + 1 offsets."""
    type: torch.dtype
    """Of a piece: that of the weights."""
    summed: torch.dtype
    """Of the sum: that of the masters, where there are any."""


class Sums:
    """The gradient of one optimizer step, on its way; in every process with the same arguments but `rank`."""

    def __init__(
        self, group: Any, rank: int, size: int, weights: Mapping[str, Tensor], summed: Mapping[str, torch.dtype]
    ) -> None:
        """`group` is a process group of torch; `summed` has the type of each sum."""
        self._group, self.rank, self.size, self._weights = group, rank, size, weights
        kinds = sorted({(str(weights[n].dtype), str(summed[n])) for n in weights})
        self._flats = []
        for kind in kinds:
            names = tuple(n for n in weights if (str(weights[n].dtype), str(summed[n])) == kind)
            ends = [0]
            for name in names:
                ends.append(ends[-1] + weights[name].numel())
            self._flats.append(_Flat(names, tuple(ends), weights[names[0]].dtype, summed[names[0]]))
        self._place = {name: place for place, name in enumerate(weights)}
        self._own = [self._shard(flat, rank) for flat in self._flats]
        self._sums = [
            torch.zeros(end - start, dtype=flat.summed)
            for flat, (start, end) in zip(self._flats, self._own, strict=True)
        ]
        self._seen = torch.zeros(len(weights), dtype=torch.bool)
        """Weights that a slice of any process used."""
        self._first: set[str] = set()
        """Weights of whose shard here a piece has come."""

    def _shard(self, flat: _Flat, rank: int) -> tuple[int, int]:
        total = flat.starts[-1]
        return total * rank // self.size, total * (rank + 1) // self.size

    def round(self, gradients: Mapping[str, Tensor | None] | None, has: Sequence[bool]) -> None:
        """Exchange the pieces of one slice a process; `has` names which of them have one, None stands for no slice."""
        used = torch.zeros(len(self._weights), dtype=torch.uint8)
        if gradients is not None:
            used = torch.tensor([gradients[name] is not None for name in self._weights], dtype=torch.uint8)
        used_W = self._all(used)
        for place, flat in enumerate(self._flats):
            pieces = self._exchange(flat, gradients, has, self._own[place])
            for rank, piece in pieces.items():
                self._add(place, flat, piece, used_W[rank])
        for rank in range(self.size):
            self._seen |= used_W[rank].bool()

    def _all(self, used: Tensor) -> list[Tensor]:
        found = [torch.zeros_like(used) for _ in range(self.size)]
        self._wait(partial(self._group.allgather, [found], [used]))
        return found

    def _exchange(
        self, flat: _Flat, gradients: Mapping[str, Tensor | None] | None, has: Sequence[bool], own: tuple[int, int]
    ) -> dict[int, Tensor]:
        """The pieces of this process's shard, by the process that made them."""
        given = torch.zeros(0, dtype=flat.type)
        if gradients is not None:
            given = torch.cat([self._piece(gradients, name, flat) for name in flat.names])
        sent = [end - start if gradients is not None else 0 for start, end in self._shards(flat)]
        size = own[1] - own[0]
        received = [size if has[rank] else 0 for rank in range(self.size)]
        into = torch.empty(sum(received), dtype=flat.type)
        self._wait(partial(self._all_to_all, into, given, received, sent))
        return {rank: piece for rank, piece in enumerate(torch.split(into, received)) if has[rank]}

    def _piece(self, gradients: Mapping[str, Tensor | None], name: str, flat: _Flat) -> Tensor:
        found = gradients[name]
        return torch.zeros(self._weights[name].numel(), dtype=flat.type) if found is None else found.reshape(-1)

    def _shards(self, flat: _Flat) -> list[tuple[int, int]]:
        return [self._shard(flat, rank) for rank in range(self.size)]

    def _all_to_all(self, into: Tensor, given: Tensor, received: list[int], sent: list[int]) -> Any:
        return self._group.alltoall_base(into, given, received, sent)

    def _add(self, place: int, flat: _Flat, piece: Tensor, used: Tensor) -> None:
        """Add one piece to the own shard, weight by weight where some are missing."""
        begin, end = self._own[place]
        total = self._sums[place]
        for name, start, stop in zip(flat.names, flat.starts, flat.starts[1:], strict=False):
            low, high = max(start, begin) - begin, min(stop, end) - begin
            if low >= high or not used[self._place[name]]:
                continue
            if name in self._first:
                total[low:high].add_(piece[low:high])
            else:
                total[low:high].copy_(piece[low:high])
                self._first.add(name)

    def gathered(self) -> dict[str, Tensor]:
        """In process 0 the sums of all weights that some slice used, each in memory of its own; elsewhere nothing."""
        found = {}
        for place, flat in enumerate(self._flats):
            sizes = [end - start for start, end in self._shards(flat)]
            own = self._sums[place]
            into = torch.empty(flat.starts[-1] if self.rank == 0 else 0, dtype=flat.summed)
            received = sizes if self.rank == 0 else [0] * self.size
            sent = [len(own), *[0] * (self.size - 1)]
            self._wait(partial(self._all_to_all, into, own, received, sent))
            if self.rank == 0:
                for name, start, stop in zip(flat.names, flat.starts, flat.starts[1:], strict=False):
                    if self._seen[self._place[name]]:
                        found[name] = into[start:stop].clone().reshape(self._weights[name].shape)
        return found

    def _wait(self, begin: Any) -> None:
        try:
            begin().wait()
        except RuntimeError as error:
            raise GroupBroken(f"a learner is gone or does not answer: {str(error).splitlines()[0]}") from error
