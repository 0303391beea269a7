"""The learners of a sharded policy: the side of the run's own process, which is the first of them.

It also has the policy whole, from which samplers get their weights and checkpoints are written; all else that training
takes is shared out (`posttrain.cluster._part`). A learner that is lost takes its part of the moments with it. So the
run ends then, in one sentence, and goes on from its checkpoint.
"""

import gc
import pickle
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from posttrain.cluster._forward import scored, signals
from posttrain.cluster._gang import dealt
from posttrain.cluster._part import Part, join_mesh, leave_mesh, stored
from posttrain.cluster._references import dumps, loads
from posttrain.cluster._session import Processes
from posttrain.cluster._store import put
from posttrain.cluster._weights import Buffer, Version, digest_of, size_of, write
from posttrain.cluster.dispatch import split
from posttrain.errors import RunFailed, UserError
from posttrain.policies import Policy
from posttrain.signals import Signal
from posttrain.training.learner import Asked, InProcess, Loss, Slice
from posttrain.training.packing import MicroBatch
from posttrain.training.updates import MASTER, total_norm

if TYPE_CHECKING:
    from posttrain.training.learner import Learner


class Parts:
    """The sharded policies of a run, in all learners."""

    is_here: ClassVar[bool] = True
    """Whether this process is the first learner."""

    def __init__(self, session: Processes) -> None:
        self._session = session
        self._lock = threading.RLock()
        """Held where parts are chosen, made or dropped."""
        self._mesh: Any = None
        self._joined: list[Any] = []
        """All other processes that have connected themselves."""
        self._groups: list[list[int]] = []
        self._members: dict[str, list[Any]] = {}
        """Those that have the parts of a policy."""
        self._own: dict[str, Part] = {}
        """What this process has, as the first learner, by the policy's name and a number of its own."""
        self._digests: dict[str, str] = {}
        self._owner: dict[str, weakref.ref[Learner]] = {}
        """The learner that a part is for; one that is frozen has none."""
        self._count = 0

    def members(self, policy: Policy, learner: "Learner | None") -> list[Any]:
        """The other processes that have parts of a policy, for a learner or, without one, for signals."""
        return self._session.learners

    def ranks(self, members: Sequence[Any]) -> list[int]:
        """Their places among all that have connected themselves, this process included where it has parts."""
        first = int(self.is_here)
        return [*range(first), *(self._joined.index(member) + first for member in members)]

    def groups(self) -> list[list[int]]:
        """Some of all processes that have parts by themselves, as numbers of members."""
        return []

    def of(self, policy: Policy, learner: "Learner | None") -> str:
        """Make all parts of a policy for a learner, or bring weights that were changed meanwhile to them; returns their
        name. Without a learner, for signals, those of any on the same processes will do.
        """
        session, digest, members = self._session, digest_of(policy), list(self.members(policy, learner))
        with self._lock:
            known = [name for name, own in self._members.items() if _policy_of(name) == session.name_of(policy)]
            known = [name for name in known if _numbers(self._members[name]) == _numbers(members)]
            if learner is not None:
                known = [name for name in known if name in self._owner and self._owner[name]() is learner]
            known.sort(key=lambda name: self._digests[name] != digest)
            if known and self._digests[known[0]] == digest:
                return known[0]
            new = not known
            self.join()
            self._check(members)
            if new:
                self._drop([name for name, owner in self._owner.items() if owner() is None])
                self._count += 1
            name = known[0] if known else f"{session.name_of(policy)}{_SEPARATOR}{self._count}"
        self._bring(name, policy, learner, members, new=new)
        with self._lock:
            self._members[name], self._digests[name] = members, digest
            if learner is not None:
                self._owner[name] = weakref.ref(learner)
        return name

    def _bring(self, name: str, policy: Policy, learner: "Learner | None", members: list[Any], *, new: bool) -> None:
        """Give all processes the weights of now; new parts are made first."""
        session, learning = self._session, learner.settings if learner is not None else None
        began, buffer = time.monotonic(), Buffer()
        digest = write(policy, buffer.room(size_of(policy)))
        version = Version(name=name, number=policy.version, digest=digest, bytes=size_of(policy))
        content = far = None
        if new:
            content = dumps((pickle.dumps(policy), learning, self.ranks(members), self.is_here), session.name_of)
            content = put(session.settings, policy, content)
        if not all(member.is_near for member in members):
            far = put(session.settings, policy, buffer.array[: version.bytes])

        def own() -> None:
            if new:
                self._own[name] = Part(pickle.loads(pickle.dumps(policy)), self._mesh, learning)
            self._own[name].take(stored(policy, buffer.array[: version.bytes]))

        begin = [
            partial(m.actor.take_part.remote, version, buffer.path, None if m.is_near else far, content)
            for m in members
        ]
        self._together(begin, own)
        buffer.close()
        session.brought(policy, version.bytes, time.monotonic() - began)

    def call(self, name: str, method: str, arguments: Sequence[tuple[Any, ...]], by: Policy) -> list[Any]:
        """Call a method of all parts of a policy, with arguments for each learner. Results by learner."""
        session, policies = self._session, dict[str, Policy]()

        def name_of(policy: Policy) -> str:
            policies[session.name_of(policy)] = policy
            return session.name_of(policy)

        try:
            contents = [dumps(given, name_of) for given in arguments]
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise UserError(
                f"cluster.sharding=fsdp: the loss cannot be sent to the other learners ({error}); set "
                "cluster.sharding=none"
            ) from None
        for key, policy in policies.items():
            if key != _policy_of(name):
                session.publish(policy, "learn", by)
        own = contents.pop(0) if self.is_here else b""
        members = self._team(name)
        calls = [
            partial(member.actor.part.remote, name, method, content)
            for member, content in zip(members, contents, strict=True)
        ]

        def here() -> Any:
            part = self._own[name]
            return getattr(part, method)(*loads(own, {**policies, _policy_of(name): part.policy}))

        return self._together(calls, here)

    def size(self, name: str) -> int:
        """How many learners have the parts of that name."""
        return len(self._members[name]) + self.is_here

    def update(self, name: str, norm: Tensor, factor: float, policy: Policy) -> None:
        """Update all parts, and the whole policy that is here."""
        content = dumps((norm, factor), self._session.name_of)
        calls = [partial(member.actor.part.remote, name, "update", content) for member in self._team(name)]
        self._together(calls, lambda: self._own[name].update(norm, factor, policy))
        self._digests[name] = digest_of(policy)

    def forget(self, policies: Collection[str]) -> None:
        """Drop all parts of some policies."""
        with self._lock:
            self._drop([name for name in self._members if _policy_of(name) in policies])

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            for member in self._members.pop(name, ()):
                member.actor.drop_parts.remote([name])
            for kept in (self._own, self._digests, self._owner):
                kept.pop(name, None)
        gc.collect()  # torch's modules refer to one another in circles

    def close(self) -> None:
        """Leave the others."""
        with self._lock:
            self._drop(list(self._members))
            if self._mesh is not None:
                leave_mesh()

    def pool(self) -> list[Any]:
        """All other processes that may have parts."""
        return self._session.learners

    def join(self) -> None:
        """Connect all processes, if they are not; anew where one was replaced and there are no parts yet."""
        with self._lock:
            session, pool = self._session, self.pool()
            if self._mesh is not None and (self._members or (self._joined, self._groups) == (pool, self.groups())):
                return
            session.replace_dead(pool)
            self._joined, self._groups = list(pool), self.groups()
            numbers = _numbers(pool)
            groups = [[numbers.index(number) for number in group] for group in self._groups]
            first, timeout = int(self.is_here), session.settings.timeout
            place = session.meeting_place(pool, is_here=self.is_here)
            size = len(pool) + first

            def own() -> None:
                leave_mesh()
                self._mesh = join_mesh(place, 0, size, timeout)

            begin = [
                partial(member.actor.join_mesh.remote, place, rank, size, timeout, groups)
                for rank, member in enumerate(pool, first)
            ]
            self._together(begin, own)
            self._mesh = self._mesh or "there"

    def _team(self, name: str) -> list[Any]:
        """Those that have the parts of that name."""
        if (members := self._members.get(name)) is None:
            raise self._lost("the learners left one another")
        self._check(members)
        return members

    def _check(self, members: Sequence[Any]) -> None:
        """Raise `RunFailed` where one of them is not one of those that are connected any more."""
        there = self.pool()
        if any(member not in self._joined or member not in there for member in members) or (
            self.is_here and self._joined != there
        ):
            raise self._lost("a learner was replaced")

    def _together(self, others: Sequence[Callable[[], Any]], own: Callable[[], Any]) -> list[Any]:
        """Begin with all others, do the own part where this process has one, wait."""
        import ray

        calls = [begin() for begin in others]
        try:
            mine = [own()] if self.is_here else []
            return [*mine, *ray.get(calls, timeout=self._session.settings.timeout)]
        except BaseException as error:
            if self.is_here:
                leave_mesh()  # so that the others do not wait
            cause = self._cause(calls, error)
            with self._lock:
                self._mesh = None
                self._drop(list(self._members))
            raise cause from None

    def _cause(self, calls: Sequence[Any], error: BaseException) -> BaseException:
        """What failed in a learner's own code, or else that one is lost."""
        import ray

        if not isinstance(error, ray.exceptions.RayError) and not is_lost(error):
            return error
        for call in calls:
            try:
                ray.get(call, timeout=self._session.settings.timeout)
            except ray.exceptions.RayTaskError as failed:
                cause = getattr(failed, "cause", None) or failed
                if not is_lost(cause):
                    return cause
            except ray.exceptions.RayError as gone:
                error = gone
        return self._lost(str(error).splitlines()[0])

    def _lost(self, why: str) -> RunFailed:
        return RunFailed(
            f"a learner is gone or does not answer, and its part of the optimizer's state with it ({why}); posttrain "
            "resume goes on from the last checkpoint"
        )


_SEPARATOR = "|"


def _policy_of(name: str) -> str:
    """The name of the policy that a part is of."""
    return name.partition(_SEPARATOR)[0]


def _numbers(members: Sequence[Any]) -> list[int]:
    return [member.number for member in members]


def is_lost(error: BaseException) -> bool:
    """Whether an error is that of a connection between learners. (Gloo has no class of its own for them.)"""
    return isinstance(error, RuntimeError) and ("gloo" in str(error).lower() or "connection" in str(error).lower())


class ShardedGang(InProcess):
    """See `posttrain.training.learner.Workers`."""

    def __init__(self, session: Processes, parts: Parts, learner: "Learner") -> None:
        self._session, self._parts = session, parts
        settings, policy = learner.settings, learner.policy
        reasons = {
            "learner.privacy needs the gradient of each record": settings.privacy is not None,
            "the optimizer reads other models": bool(settings.optimizer.roles),
            f"the {policy.called} changes with the steps": type(policy).at is not Policy.at,
        }
        if refused := [why for why, is_so in reasons.items() if is_so]:
            raise UserError(
                f"cluster.sharding=fsdp is not there for the role '{policy.role}': {refused[0]}; set "
                "cluster.sharding=none"
            )
        learner.own.release()

    def _part(self, learner: "Learner") -> str:
        return self._parts.of(learner.policy, learner)

    def _all(self, learner: "Learner", method: str, *given: Any, first: tuple[Any, ...] | None = None) -> list[Any]:
        """Call a method everywhere with the same arguments, or with others in the first learner."""
        name = self._part(learner)
        arguments = [given] * self._parts.size(name)
        if first is not None:
            arguments[0] = first
        return self._parts.call(name, method, arguments, learner.policy)

    def slices(self, learner: "Learner", batches: Iterable[MicroBatch], loss: Loss, progress: float) -> Iterator[Slice]:
        """Slice k by learner k mod W."""
        every = list(batches)
        if not every:
            return
        name = self._part(learner)
        size = self._parts.size(name)
        given = [(list(dealt(every, r, size)), every[0], len(every), loss, progress) for r in range(size)]
        done = self._parts.call(name, "slices", given, learner.policy)
        for _, piece in sorted((item for own in done for item in own), key=lambda item: item[0]):
            yield piece

    def signals(self, asked: Asked, batches: Iterable[MicroBatch]) -> Iterator[Mapping[Signal, Tensor]]:
        """Forward passes in equal parts, of models that are sharded too; the last one is repeated to fill a part."""
        every = list(batches)
        if not every:
            return iter(())
        if scored(self._session, asked, every):
            return signals(self._session, asked, every, "score")
        if type(asked.policy).at is not Policy.at:
            return super().signals(asked, every)
        name = self._parts.of(asked.policy, None)
        parts = split(every, self._parts.size(name), "last")
        found = self._parts.call(name, "signals", [(asked, part) for part in parts], asked.policy)
        return iter([item for own in found for item in own][: len(every)])

    def norm(self, learner: "Learner") -> Tensor:
        """By parameter where it is whole, then over all in the order of the parameters."""
        norms = {name: norm for own in self._all(learner, "norms") for name, norm in own.items()}
        return total_norm([norms[name] for name in learner.parameters if name in norms])

    def update(self, learner: "Learner", norm: Tensor, factor: float) -> None:
        """Each weight by its owner."""
        self._parts.update(self._part(learner), norm, factor, learner.policy)

    def gradients(self, learner: "Learner") -> Mapping[str, Tensor]:
        """Brought here."""
        return self._brought(learner, "gradients")

    def _brought(self, learner: "Learner", method: str) -> dict[str, Tensor]:
        """Tensors of all by name, in any order."""
        found: dict[str, Tensor] = self._all(learner, method)[0]
        return found

    def drop(self, learner: "Learner") -> None:
        """Everywhere."""
        self._all(learner, "drop")

    def state(self, learner: "Learner") -> dict[str, Tensor]:
        """Brought here, in the order of one process."""
        found = self._brought(learner, "state")
        place = {name: i for i, name in enumerate(learner.parameters)}

        def order(key: str) -> tuple[bool, int]:
            name, _, entry = key.rpartition("|")
            return entry == MASTER, place[name]

        return {key: found[key] for key in sorted(found, key=order)}

    def load_state(self, learner: "Learner", tensors: Mapping[str, Tensor]) -> None:
        """Handed out to the owners."""
        self._all(learner, "load_state", first=(dict(tensors),))

    def reset(self, learner: "Learner") -> None:
        """Everywhere."""
        self._all(learner, "reset")

    def bytes(self, learner: "Learner") -> list[dict[str, int]]:
        """Of each learner, what it has between two steps."""
        found: list[dict[str, int]] = self._all(learner, "bytes")
        return found
