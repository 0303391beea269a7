"""The learners of a cluster: this process is the first of them, the others are actors.

This process has the optimizer, the schedule and the masters, and updates the weights; the others have a copy of the
models and compute gradients. So a checkpoint is that of one process, and nothing is lost with a learner: the group is
formed anew, and the gradient computed again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from posttrain.cluster._sums import Sums
from posttrain.policies import Policy
from posttrain.training.learner import Loss, Slice
from posttrain.training.packing import MicroBatch

Numbered = tuple[int, MicroBatch]


def join(place: str, rank: int, size: int, timeout: float) -> Any:
    """A process group over gloo, not the default one. `place` is a file that all can reach, or ``host:port``."""
    from torch import distributed

    dist: Any = distributed
    store: Any
    if Path(place).is_absolute():
        store = dist.FileStore(place, size)
    else:
        host, _, port = place.rpartition(":")
        store = dist.TCPStore(host, int(port), size, is_master=rank == 0, timeout=timedelta(seconds=timeout))
    return dist.ProcessGroupGloo(dist.PrefixStore("gang", store), rank, size, timedelta(seconds=timeout))


def work(
    sums: Sums,
    policy: Policy,
    names: Sequence[str],
    own: Iterable[Numbered],
    count: int,
    loss: Loss,
    progress: float,
) -> tuple[list[tuple[int, Slice]], dict[str, Tensor]]:
    """The part of one process in an optimizer step of `count` slices: its slices, and in process 0 the gradient."""
    weights = dict(policy.named_parameters())
    done = []
    slices = iter(own)
    for begin in range(0, count, sums.size):
        has = [begin + rank < count for rank in range(sums.size)]
        gradients: dict[str, Tensor | None] | None = None
        if has[sums.rank]:
            k, batch = next(slices)
            done.append((k, on_cpu(Slice.of(policy, batch, loss, progress))))
            gradients = {}
            for name in names:
                gradients[name], weights[name].grad = weights[name].grad, None
        sums.round(gradients, has)
    return done, sums.gathered()


def on_cpu(done: Slice) -> Slice:
    """A slice that can be sent."""

    def moved(tensors: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
        return {name: tensor.cpu() for name, tensor in tensors.items()}

    return replace(done, signals=moved(done.signals), metrics=moved(done.metrics))


def dealt(batches: Sequence[MicroBatch], rank: int, size: int) -> Iterator[Numbered]:
    """The slices of one process: k mod W."""
    for k in range(rank, len(batches), size):
        yield k, batches[k]


def types_of(parameters: Mapping[str, Tensor]) -> dict[str, torch.dtype]:
    """The type in which each gradient is summed."""
    return {name: parameter.dtype for name, parameter in parameters.items()}
