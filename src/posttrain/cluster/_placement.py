"""The processes of a placement: which do a call, which have one now, and the seconds and bytes of each."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol

import torch

from posttrain.cluster import Result
from posttrain.cluster._members import Member, Settings
from posttrain.cluster._opened import Session
from posttrain.cluster._session import Use
from posttrain.engines import Engine
from posttrain.policies import Policy

if TYPE_CHECKING:
    from posttrain.cluster._weights import Version

KINDS: Final[Mapping[Use, tuple[str, ...]]] = {
    "sample": ("generate", "score"),
    "score": ("score",),
    "learn": ("train",),
}
"""Calls of a model by what they are for. A model that only scores while others sample does it where it scores."""


class Placing(Settings, Protocol):
    """What `posttrain.cluster.placed.Placed` states of the processes."""

    @property
    def calls(self) -> Mapping[str, tuple[int, ...]]: ...


class Busy:
    """Which processes have a call; the next one waits for those that it needs, in the order of asking."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._taken: set[int] = set()
        self._waiting: list[frozenset[int]] = []

    @contextmanager
    def taken(self, numbers: Iterable[int]) -> Iterator[None]:
        """Inside, these processes have no other call."""
        own = frozenset(numbers)

        def is_free() -> bool:
            earlier = self._waiting[: next(i for i, other in enumerate(self._waiting) if other is own)]
            return not own & self._taken and not any(own & other for other in earlier)

        with self._changed:
            self._waiting.append(own)
            self._changed.wait_for(is_free)
            self._waiting = [other for other in self._waiting if other is not own]
            self._taken |= own
        try:
            yield
        finally:
            with self._changed:
                self._taken -= own
                self._changed.notify_all()


class Placement(Session):
    """The processes of a placement, and which of them have a call."""

    def __init__(self, settings: Placing, engine: Engine, seed: int, folder: Path) -> None:
        super().__init__(settings, engine, seed, folder)
        self.calls = settings.calls
        self.busy = Busy()
        self.groups: dict[str, list[int]] = {}
        """The processes (of the system) of each group that learns together."""
        self._publishing = threading.RLock()

    def start(self) -> None:
        """Start all processes at the same time."""
        self.samplers = [self._start("Workers", number) for number in range(self.settings.samplers)]
        for member in self.samplers:
            self._check(member)

    def kind_of(self, members: list[Member]) -> tuple[str, str]:
        """They are all of one kind."""
        return "Workers", "process"

    def can_do_without(self, members: list[Member]) -> bool:
        """A placement names each of them."""
        return False

    def buffer_of(self, use: Use) -> str:
        """All calls have the weights of the last update."""
        return "all"

    def places(self, use: Use, role: str) -> tuple[int, ...]:
        """The numbers of the processes of a call; all where the placement has none."""
        named = [self.calls[f"{kind} {role}"] for kind in KINDS[use] if f"{kind} {role}" in self.calls]
        return named[0] if named else tuple(range(len(self.samplers)))

    def members(self, use: Use, policy: Policy) -> list[Member]:
        """Those of the model's role."""
        return [self.samplers[number] for number in self.places(use, policy.role)]

    def publish(self, policy: Policy, use: Use, by: Policy | None = None) -> "Version":
        """One at a time."""
        with self._publishing:
            return super().publish(policy, use, by)

    def brought(self, policy: Policy, size: int, seconds: float) -> None:
        """Count seconds and bytes towards the role too."""
        with self._publishing:
            super().brought(policy, size, seconds)
            self.called("weights", policy, seconds)
            self._timing[f"weight_bytes_{policy.role}"] = float(size)

    def has_parts(self, policy: Policy, found: Sequence[Mapping[str, int]]) -> None:
        """Count what the processes of a sharded model that is trained have of it: the most of all."""
        with self._publishing:
            self._timing[f"part_bytes_{policy.role}"] = float(max(o["weights"] + o["optimizer"] for o in found))
            self._timing[f"part_gradients_{policy.role}"] = float(max(o["gradients"] for o in found))

    def called(self, call: str, policy: Policy, seconds: float) -> None:
        """Count them towards the name of the call."""
        name = f"seconds_{call}_{policy.role}"
        with self._publishing:
            self._timing[name] = self._timing.get(name, 0.0) + seconds

    def beside(self, policies: Collection[Policy], work: Callable[[], Result]) -> Callable[[], Result]:
        """At once: a process has one version of a model."""
        found = work()
        return lambda: found

    @contextmanager
    def call(self, call: Literal["score", "train"], policy: Policy) -> Iterator[None]:
        """Have the processes of a call, and count its seconds."""
        with self.busy.taken(self.places("score" if call == "score" else "learn", policy.role)):
            began = time.monotonic()
            yield
            self.called(call, policy, time.monotonic() - began)

    def together(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        """A thread for each; they wait for the processes of their calls."""
        if len(works) < 2:
            return [work() for work in works]
        threads = torch.get_num_threads()

        def begun(work: Callable[[], Result]) -> Result:
            torch.set_num_threads(threads)  # a setting of each thread, on which bits depend
            return work()

        with ThreadPoolExecutor(len(works), "posttrain-call") as pool:
            futures = [pool.submit(begun, work) for work in works]
        return [future.result() for future in futures]
