"""Calls of a step on the processes of a placement: the side of the run's own process.

Every process can do any call. A placement names the processes of each; a process that no call of a model names has no
copy of it. Calls that need nothing of one another go on at the same time where they have no process in common. The
run's own process does none of them: it has the optimizer, and updates the weights.

Weights are those of this process after an update. They go to the processes of a call before it begins, if they have
older ones: that is the reallocation of a model between the places where it is trained, and where it generates.
"""

import pickle
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import torch

from posttrain.cluster import Result
from posttrain.cluster._forward import signals
from posttrain.cluster._gang import dealt, types_of
from posttrain.cluster._members import Member, Settings
from posttrain.cluster._opened import Session
from posttrain.cluster._references import dumps
from posttrain.cluster._session import MOST_REPLACED, Use
from posttrain.cluster._sums import GroupBroken
from posttrain.engines import Engine
from posttrain.errors import RunFailed
from posttrain.policies import Policy
from posttrain.signals import Signal
from posttrain.training.learner import Asked, InProcess, Learner, Loss, Slice
from posttrain.training.packing import MicroBatch

if TYPE_CHECKING:
    from torch import Tensor

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


class PlacedSession(Session):
    """See `posttrain.cluster.Session`."""

    def __init__(self, settings: Placing, engine: Engine, seed: int, folder: Path) -> None:
        super().__init__(settings, engine, seed, folder)
        self._calls = settings.calls
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
        named = [self._calls[f"{kind} {role}"] for kind in KINDS[use] if f"{kind} {role}" in self._calls]
        return named[0] if named else tuple(range(len(self.samplers)))

    def members(self, use: Use, policy: Policy) -> list[Member]:
        """Those of the model's role."""
        return [self.samplers[number] for number in self.places(use, policy.role)]

    def publish(self, policy: Policy, use: Use, by: Policy | None = None) -> "Version":
        """One at a time; seconds are counted towards the role."""
        with self._publishing:
            before, began = self._timing.get("weight_bytes", 0.0), time.monotonic()
            version = super().publish(policy, use, by)
            if size := self._timing.get("weight_bytes", 0.0) - before:
                self.called("weights", policy, time.monotonic() - began)
                self._timing[f"weight_bytes_{policy.role}"] = size
            return version

    def called(self, call: str, policy: Policy, seconds: float) -> None:
        """Count them towards the name of the call."""
        name = f"seconds_{call}_{policy.role}"
        with self._publishing:
            self._timing[name] = self._timing.get(name, 0.0) + seconds

    def beside(self, policies: Collection[Policy], work: Callable[[], Result]) -> Callable[[], Result]:
        """At once: a process has one version of a model."""
        found = work()
        return lambda: found

    def workers(self, learner: Learner) -> "PlacedWorkers":
        """Those of the placement."""
        return PlacedWorkers(self)


class PlacedWorkers(InProcess):
    """See `posttrain.training.learner.Workers`."""

    def __init__(self, session: PlacedSession) -> None:
        self._session = session

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

    def signals(self, asked: Asked, batches: Iterable[MicroBatch]) -> Iterator[Mapping[Signal, "Tensor"]]:
        """By the processes that score."""
        every = list(batches)
        models = (asked.policy, *asked.others.values())
        if not every or any(type(policy).at is not Policy.at for policy in models):
            return super().signals(asked, every)
        with self._call("score", asked.policy):
            return signals(self._session, asked, every, "score")

    def slices(self, learner: Learner, batches: Iterable[MicroBatch], loss: Loss, progress: float) -> Iterator[Slice]:
        """By the processes that train; one that is killed is replaced, and the step computed again."""
        every = list(batches)
        begun = any(parameter.grad is not None for parameter in learner.parameters.values())
        parts = None if begun or not every else self._parts(learner, every, loss, progress)
        if parts is None:
            yield from super().slices(learner, every, loss, progress)
            return
        with self._call("train", learner.policy):
            done = self._done(learner, parts)
        yield from done

    @contextmanager
    def _call(self, call: str, policy: Policy) -> Iterator[None]:
        session = self._session
        with session.busy.taken(session.places("score" if call == "score" else "learn", policy.role)):
            began = time.monotonic()
            yield
            session.called(call, policy, time.monotonic() - began)

    def _parts(
        self, learner: Learner, every: Sequence[MicroBatch], loss: Loss, progress: float
    ) -> tuple[list[bytes], list[Policy]] | None:
        """What each process gets, and the models that it needs; None for a loss that cannot be sent."""
        session, policy = self._session, learner.policy
        if type(policy).at is not Policy.at:
            session.note(f"the {policy.called} changes with the steps, so that it learns in the run's own process")
            return None
        named: dict[int, Policy] = {}

        def name_of(policy: Policy) -> str:
            named[id(policy)] = policy
            return session.name_of(policy)

        size, types = len(session.places("learn", policy.role)), types_of(learner.parameters)
        try:
            contents = [
                dumps((policy, types, list(dealt(every, rank, size)), len(every), loss, progress), name_of, policy)
                for rank in range(size)
            ]
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            session.note(f"the run's own process learns, since the loss cannot be sent: {error}")
            return None
        return contents, list(named.values())

    def _done(self, learner: Learner, parts: tuple[list[bytes], list[Policy]]) -> list[Slice]:
        """The slices; the gradient is the learner's then."""
        for _ in range(MOST_REPLACED + 1):
            try:
                return self._once(learner, *parts)
            except GroupBroken as error:
                self._session.note(f"the group of {learner.policy.role} was formed anew: {error}")
        raise RunFailed("the processes lost one another again and again; posttrain cluster check may show why")

    def _once(self, learner: Learner, contents: Sequence[bytes], policies: Sequence[Policy]) -> list[Slice]:
        import ray

        session = self._session
        for policy in policies:
            session.publish(policy, "learn", learner.policy)
        members = session.members("learn", learner.policy)
        key = self._group(members)
        calls = [m.actor.gradient.remote(key, content) for m, content in zip(members, contents, strict=True)]
        try:
            found: list[Any] = ray.get(calls, timeout=session.settings.timeout * (1 + len(contents)))
        except (ray.exceptions.RayError, TimeoutError) as error:
            self._leave(members, calls, key)
            raise GroupBroken(str(error).splitlines()[0]) from error
        for name, gradient in found[0][1].items():
            learner.parameters[name].grad = gradient
        return [piece for _, piece in sorted((own for done, _ in found for own in done), key=lambda item: item[0])]

    def _group(self, members: Sequence[Member]) -> str:
        """The name of the group of these processes, formed where there is none."""
        import ray

        session = self._session
        key, own = "-".join(str(member.number) for member in members), [member.pid for member in members]
        if session.groups.get(key) != own:
            place, timeout = session.meeting_place(), session.settings.timeout
            calls = [m.actor.form.remote(key, place, rank, len(members), timeout) for rank, m in enumerate(members)]
            try:
                ray.get(calls, timeout=timeout)
            except (ray.exceptions.RayError, TimeoutError) as error:
                session.replace_dead(list(members))
                raise GroupBroken(str(error).splitlines()[0]) from error
            session.groups[key] = own
        return key

    def _leave(self, members: Sequence[Member], calls: Sequence[Any], key: str) -> None:
        """Dissolve a group. Raises what failed in a process's own code, if that was the cause."""
        import ray

        session = self._session
        session.groups.pop(key, None)
        for call in calls:
            try:
                ray.get(call, timeout=session.settings.timeout)
            except ray.exceptions.RayTaskError as failed:
                cause = getattr(failed, "cause", None)
                if not isinstance(cause, GroupBroken):
                    raise (cause or failed) from None
            except ray.exceptions.RayError:
                continue
        session.replace_dead(list(members))
