"""Sharded models on the processes of a placement: the side of the run's own process, which has no part of them.

Each call has a mesh of its own processes. A model that is trained is cut over those that train it, who have its
gradients, masters and moments. After an update the owners write their weights into the memory that samplers on this
machine compute with, and this process reads them there, for checkpoints; other machines send them. A model that
only scores, or scores elsewhere than it is trained, is cut over the processes of its score. A call with one process has
the whole model.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from posttrain.cluster import Result
from posttrain.cluster._forward import signals
from posttrain.cluster._groups import owners
from posttrain.cluster._placement import Placement
from posttrain.cluster._sharded import Parts, ShardedGang
from posttrain.cluster._weights import digest_of
from posttrain.policies import Policy
from posttrain.signals import Signal
from posttrain.training.learner import Asked, InProcess, Loss, Slice
from posttrain.training.packing import MicroBatch

if TYPE_CHECKING:
    from posttrain.training.learner import Learner

PIECE: Final = 32 << 20
"""Bytes, about, that a process hands out at a time."""


class PlacedParts(Parts):
    """The sharded models of a run."""

    is_here = False

    def __init__(self, session: Placement) -> None:
        super().__init__(session)
        self._placed = session
        self._counted: set[str] = set()
        """The parts whose bytes are known."""

    def pool(self) -> list[Any]:
        """All processes of the placement."""
        return self._placed.samplers

    def members(self, policy: Policy, learner: "Learner | None") -> list[Any]:
        """Those that train it or, without a learner, score with it."""
        found = self._placed.members("learn" if learner is not None else "score", policy)
        return sorted(found, key=lambda member: member.number)

    def groups(self) -> list[list[int]]:
        """Those of the calls of the placement that use parts."""
        named = self._placed.calls.items()
        own = {tuple(sorted(numbers)) for call, numbers in named if call.partition(" ")[0] in ("score", "train")}
        return [list(numbers) for numbers in sorted(own) if 1 < len(numbers) < len(self.pool())]

    def update(self, name: str, norm: Tensor, factor: float, policy: Policy) -> None:
        """Update all parts, and bring the weights here: owners on this machine write them into the buffer of samplers,
        those on others send them in pieces.
        """
        self.call(name, "update", [(norm, factor)] * self.size(name), policy)
        began = time.monotonic()
        if all(member.is_near for member in self._members[name]):
            sent = self._placed.sent("learn", self._placed.name_of(policy))
            given = sent.places(policy)
            self.call(name, "hand_over", [(sent.buffer.path, given)] * self.size(name), policy)
            sent.arrive(policy)
        else:
            self._fetch(name, policy)
        self._digests[name] = digest_of(policy)
        self._placed.called("weights", policy, time.monotonic() - began)
        if name not in self._counted:
            self._counted.add(name)
            self._placed.has_parts(policy, self.call(name, "bytes", [()] * self.size(name), policy))

    def _fetch(self, name: str, policy: Policy) -> None:
        weights = dict(policy.named_parameters())
        with torch.no_grad():
            for found in self.pieces(name, "weights", policy):
                for own, tensor in found.items():
                    weights[own].copy_(tensor)

    def pieces(self, name: str, what: str, policy: Policy) -> Iterator[dict[str, Tensor]]:
        """What the learners own of a policy, a little of each at a time, so that it never is in Ray's store whole."""
        starts = [0] * self.size(name)
        while True:
            found = self.call(name, "piece", [(what, start, PIECE) for start in starts], policy)
            if not any(found):
                return
            yield {own: tensor for piece in found for own, tensor in piece.items()}
            starts = [start + len(piece) for start, piece in zip(starts, found, strict=True)]


class PlacedGang(ShardedGang):
    """See `posttrain.training.learner.Workers`."""

    def __init__(self, session: Placement, parts: PlacedParts, learner: "Learner") -> None:
        super().__init__(session, parts, learner)
        self._placed, self._pieces = session, parts.pieces

    def together(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        """At the same time, by other processes."""
        return self._placed.together(works)

    def slices(self, learner: "Learner", batches: Iterable[MicroBatch], loss: Loss, progress: float) -> Iterator[Slice]:
        """By the processes that train."""
        with self._placed.call("train", learner.policy):
            done = list(super().slices(learner, batches, loss, progress))
        yield from done

    def signals(self, asked: Asked, batches: Iterable[MicroBatch]) -> Iterator[Mapping[Signal, Tensor]]:
        """By the processes that score, with parts where they are several."""
        every = list(batches)
        models = (asked.policy, *asked.others.values())
        if not every or any(type(policy).at is not Policy.at for policy in models):
            return InProcess.signals(self, asked, every)
        with self._placed.call("score", asked.policy):
            if len(self._placed.places("score", asked.policy.role)) == 1:
                return signals(self._placed, asked, every, "score")
            return super().signals(asked, every)

    def update(self, learner: "Learner", norm: Tensor, factor: float) -> None:
        """Each weight by its owner."""
        with self._placed.call("train", learner.policy):
            super().update(learner, norm, factor)

    def load_state(self, learner: "Learner", tensors: Mapping[str, Tensor]) -> None:
        """Each owner gets its own."""
        with self._placed.call("train", learner.policy):
            name = self._part(learner)
            size = self._parts.size(name)
            owner = owners({own: weight.numel() for own, weight in learner.parameters.items()}, size)
            given: list[dict[str, Tensor]] = [{} for _ in range(size)]
            for key, tensor in tensors.items():
                given[owner[key.rpartition("|")[0]]][key] = tensor
            self._parts.call(name, "load_own", [(own,) for own in given], learner.policy)

    def gradients(self, learner: "Learner") -> Mapping[str, Tensor]:
        """Brought here."""
        found = super().gradients(learner)
        self.drop(learner)
        return found

    def _all(self, learner: "Learner", method: str, *given: Any, first: tuple[Any, ...] | None = None) -> list[Any]:
        with self._placed.call("train", learner.policy):
            return super()._all(learner, method, *given, first=first)

    def _brought(self, learner: "Learner", method: str) -> dict[str, Tensor]:
        with self._placed.call("train", learner.policy):
            found = self._pieces(self._part(learner), method, learner.policy)
            return {name: tensor for piece in found for name, tensor in piece.items()}
