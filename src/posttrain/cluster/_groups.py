"""Exchanges among the learners of a sharded policy: pieces of gradients to owners, moments to the first and back."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Bucket:
    """Weights of one type that travel together."""

    names: tuple[str, ...]
    plain: bool = False
    """Whether they are whole in every learner."""


def owners(sizes: Mapping[str, int], learners: int) -> dict[str, int]:
    """Who updates each weight: the largest come first, each to the one who has least."""
    loads = [0] * learners
    found = {}
    for name in sorted(sizes, key=lambda name: (-sizes[name], name)):
        found[name] = loads.index(min(loads))
        loads[found[name]] += sizes[name]
    return found


def cut(shape: Sequence[int], rank: int, size: int) -> slice:
    """The rows of one learner, as torch cuts them: equal parts, the last ones shorter or empty."""
    part = -(-shape[0] // size)
    return slice(min(rank * part, shape[0]), min((rank + 1) * part, shape[0]))


class Pieces:
    """In place of torch's reduce-scatter (`FSDPModule.set_custom_reduce_scatter`): hands on whole gradients."""

    def __init__(
        self,
        shapes: Mapping[str, torch.Size],
        size: int,
        take: Callable[[Mapping[str, Tensor], Mapping[str, bool]], None],
    ) -> None:
        self._shapes, self._size, self._take = shapes, size, take
        self.used: dict[str, bool] = {}
        """Which of the gradients to come are not just zeros for a weight without one."""

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Memory for what torch packs and expects."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Take what torch packed: for each learner, its rows of all weights, padded to as many as the first has."""
        packed = input_tensor.view(self._size, -1)
        given, start = {}, 0
        for name, shape in self._shapes.items():
            rows = -(-shape[0] // self._size)
            room = rows * (shape.numel() // max(shape[0], 1))
            given[name] = packed[:, start : start + room].reshape(-1)[: shape.numel()]
            start += room
        self._take(given, self.used)
        output_tensor.zero_()  # the sum is with the owners


def exchanged(
    group: Any, names: Sequence[str], given: Mapping[str, Tensor], used: Mapping[str, bool], owner: Mapping[str, int]
) -> list[dict[str, tuple[Tensor, bool]]]:
    """Of each learner, in order, its gradients of the weights that are owned here, and whether there are any."""
    from torch import distributed

    dist: Any = distributed
    size, rank = group.size(), group.rank()
    kind = next(iter(given.values())).dtype
    sent, counts = [], []
    for other in range(size):
        own = [name for name in names if owner[name] == other]
        flags = torch.tensor([float(used[name]) for name in own], dtype=kind, device=given[names[0]].device)
        parts = [*(given[name].reshape(-1) for name in own), flags]
        sent += parts
        counts.append(sum(len(part) for part in parts))
    into = torch.empty(counts[rank] * size, dtype=kind, device=given[names[0]].device)
    dist.all_to_all_single(into, torch.cat(sent), [counts[rank]] * size, counts, group=group)
    own = [name for name in names if owner[name] == rank]
    found = []
    for part in torch.split(into, counts[rank]) if own else [into[:0]] * size:
        *pieces, marks = torch.split(part, [*(given[name].numel() for name in own), len(own)])
        found.append({name: (pieces[i], bool(marks[i])) for i, name in enumerate(own)})
    return found


def fetched(group: Any, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """In learner 0, the tensors of all; elsewhere nothing."""
    from torch import distributed

    dist: Any = distributed
    abouts: list[Any] = [None] * group.size()
    dist.all_gather_object(abouts, _about(tensors), group=group)
    if group.rank():
        for tensor in tensors.values():
            dist.send(tensor.contiguous().reshape(-1), dst=0, group=group)
        return {}
    found = dict(tensors)
    for rank in range(1, group.size()):
        for name, kind, shape in abouts[rank]:
            into = torch.empty(shape, dtype=kind).reshape(-1)
            dist.recv(into, src=rank, group=group)
            found[name] = into.reshape(shape)
    return found


def handed_out(group: Any, tensors: Mapping[str, Tensor] | None, owner: Mapping[str, int]) -> dict[str, Tensor]:
    """The tensors of the own weights, of those that learner 0 has; names are ``weight|entry``."""
    from torch import distributed

    dist: Any = distributed
    about: list[Any] = [_about(tensors or {})]
    dist.broadcast_object_list(about, src=0, group=group)
    rank = group.rank()
    found = {}
    for name, kind, shape in about[0]:
        whose = owner[name.rpartition("|")[0]]
        if rank == 0:
            assert tensors is not None, "learner 0 has them"
            if whose == 0:
                found[name] = tensors[name]
            else:
                dist.send(tensors[name].cpu().contiguous().reshape(-1), dst=whose, group=group)
        elif whose == rank:
            into = torch.empty(shape, dtype=kind).reshape(-1)
            dist.recv(into, src=0, group=group)
            found[name] = into.reshape(shape)
    return found


def _about(tensors: Mapping[str, Tensor]) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
    return [(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()]
