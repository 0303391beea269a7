"""The learners of a sharded policy: the side of the run's own process, which is the first of them.

It also has the policy whole, from which samplers get their weights and checkpoints are written; all else that training
takes is shared out (`posttrain.cluster._part`). A learner that is lost takes its part of the moments with it. So the
run ends then, in one sentence, and goes on from its checkpoint.
"""

import gc
import pickle
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from posttrain.cluster._forward import scored, signals
from posttrain.cluster._gang import dealt
from posttrain.cluster._part import Part, join_mesh, leave_mesh, stored
from posttrain.cluster._references import dumps, loads
from posttrain.cluster._session import Processes
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

    def __init__(self, session: Processes) -> None:
        self._session = session
        self._mesh: Any = None
        self._members: list[Any] = []
        self._own: dict[str, Part] = {}
        """What this process has, as the first learner, by the policy's name and a number of its own."""
        self._digests: dict[str, str] = {}
        self._owner: dict[str, weakref.ref[Learner]] = {}
        """The learner that a part is for; one that is frozen has none."""
        self._count = 0

    def of(self, policy: Policy, learner: "Learner | None") -> str:
        """Make all parts of a policy for a learner, or bring weights that were changed meanwhile to them; returns their
        name. Without a learner, for signals, those of any will do.
        """
        session, digest = self._session, digest_of(policy)
        known = [name for name in self._own if _policy_of(name) == session.name_of(policy)]
        if learner is not None:
            known = [name for name in known if name in self._owner and self._owner[name]() is learner]
        known.sort(key=lambda name: self._digests[name] != digest)
        if known and self._digests[known[0]] == digest:
            return known[0]
        new = not known
        self._join()
        if new:
            self._drop([name for name, owner in self._owner.items() if owner() is None])
            self._count += 1
        name = known[0] if known else f"{session.name_of(policy)}{_SEPARATOR}{self._count}"
        learning = learner.settings if learner is not None else None
        buffer = Buffer()
        version = Version(name=name, number=policy.version, digest=digest, bytes=size_of(policy))
        write(policy, buffer.room(version.bytes))

        def bring(member: Any) -> Any:
            import ray

            put: Any = ray.put
            far = None if member.is_near else put(buffer.array[: version.bytes])
            content = dumps((pickle.dumps(policy), learning), session.name_of) if new else None
            return member.actor.take_part.remote(version, buffer.path, far, content)

        def own() -> None:
            if new:
                self._own[name] = Part(pickle.loads(pickle.dumps(policy)), self._mesh, learning)
            self._own[name].take(stored(policy, buffer.array[: version.bytes]))

        self._together([partial(bring, member) for member in self._members], own)
        buffer.close()
        self._digests[name] = digest
        if learner is not None:
            self._owner[name] = weakref.ref(learner)
        return name

    def call(self, name: str, method: str, arguments: Sequence[tuple[Any, ...]], own: tuple[Any, ...]) -> list[Any]:
        """Call a method of all parts; `arguments` are those of the other learners. Results by learner."""
        session, policies = self._session, dict[str, Policy]()

        def name_of(policy: Policy) -> str:
            policies[session.name_of(policy)] = policy
            return session.name_of(policy)

        try:
            contents = [dumps(given, name_of) for given in arguments]
            content = dumps(own, name_of)
            mine = loads(content, {**policies, _policy_of(name): self._own[name].policy})
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise UserError(
                f"cluster.sharding=fsdp: the loss cannot be sent to the other learners ({error}); set "
                "cluster.sharding=none"
            ) from None
        for key, policy in policies.items():
            if key != _policy_of(name):
                session.publish(policy, "learn")
        self._check_members()
        calls = [
            partial(member.actor.part.remote, name, method, content)
            for member, content in zip(self._members, contents, strict=True)
        ]
        return self._together(calls, lambda: getattr(self._own[name], method)(*mine))

    def update(self, name: str, norm: Tensor, factor: float, policy: Policy) -> None:
        """Update all parts, and the whole policy that is here."""
        self._check_members()
        content = dumps((norm, factor), self._session.name_of)
        calls = [partial(member.actor.part.remote, name, "update", content) for member in self._members]
        self._together(calls, lambda: self._own[name].update(norm, factor, policy))
        self._digests[name] = digest_of(policy)

    def forget(self, policies: Collection[str]) -> None:
        """Drop all parts of some policies."""
        self._drop([name for name in self._own if _policy_of(name) in policies])

    def _drop(self, names: Sequence[str]) -> None:
        for name in names:
            del self._own[name], self._digests[name]
            self._owner.pop(name, None)
        for member in self._members if names else ():
            member.actor.drop_parts.remote(list(names))
        gc.collect()  # torch's modules refer to one another in circles

    def close(self) -> None:
        """Leave the others."""
        self._drop(list(self._own))
        if self._mesh is not None:
            leave_mesh()

    def _join(self) -> None:
        if self._mesh is not None:
            self._check_members()
            return
        session = self._session
        session.replace_dead(session.learners)
        place, size, timeout = session.meeting_place(), len(session.learners) + 1, session.settings.timeout
        self._members = list(session.learners)

        def own() -> None:
            self._mesh = join_mesh(place, 0, size, timeout)

        self._together([partial(m.actor.join_mesh.remote, place, m.number, size, timeout) for m in self._members], own)

    def _check_members(self) -> None:
        if self._members != self._session.learners:
            raise self._lost("a learner was replaced")

    def _together(self, others: Sequence[Callable[[], Any]], own: Callable[[], Any]) -> list[Any]:
        """Begin with all others, do the own part, wait."""
        import ray

        calls = [begin() for begin in others]
        try:
            mine = own()
            return [mine, *ray.get(calls, timeout=self._session.settings.timeout)]
        except BaseException as error:
            leave_mesh()  # so that the others do not wait
            self._mesh = None
            self._drop(list(self._own))
            raise self._cause(calls, error) from None

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

    def _all(self, learner: "Learner", method: str, *given: Any, own: tuple[Any, ...] | None = None) -> list[Any]:
        """Call a method everywhere with the same arguments, or with others in this process."""
        arguments = [given] * len(self._session.learners)
        return self._parts.call(self._part(learner), method, arguments, given if own is None else own)

    def slices(self, learner: "Learner", batches: Iterable[MicroBatch], loss: Loss, progress: float) -> Iterator[Slice]:
        """Slice k by learner k mod W."""
        every, size = list(batches), len(self._session.learners) + 1
        if not every:
            return
        given = [(list(dealt(every, r, size)), every[0], len(every), loss, progress) for r in range(size)]
        done = self._parts.call(self._part(learner), "slices", given[1:], given[0])
        for _, piece in sorted((item for own in done for item in own), key=lambda item: item[0]):
            yield piece

    def signals(self, asked: Asked, batches: Iterable[MicroBatch]) -> Iterator[Mapping[Signal, Tensor]]:
        """Forward passes in equal parts, of models that are sharded too; the last one is repeated to fill a part."""
        every, size = list(batches), len(self._session.learners) + 1
        if not every:
            return iter(())
        if scored(self._session, asked, every):
            return signals(self._session, asked, every, "score")
        if type(asked.policy).at is not Policy.at:
            return super().signals(asked, every)
        parts = split(every, size, "last")
        name = self._parts.of(asked.policy, None)
        found = self._parts.call(name, "signals", [(asked, part) for part in parts[1:]], (asked, parts[0]))
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
        found: dict[str, Tensor] = self._all(learner, "gradients")[0]
        return found

    def drop(self, learner: "Learner") -> None:
        """Everywhere."""
        self._all(learner, "drop")

    def state(self, learner: "Learner") -> dict[str, Tensor]:
        """Brought here, in the order of one process."""
        found: dict[str, Tensor] = self._all(learner, "state")[0]
        place = {name: i for i, name in enumerate(learner.parameters)}

        def order(key: str) -> tuple[bool, int]:
            name, _, entry = key.rpartition("|")
            return entry == MASTER, place[name]

        return {key: found[key] for key in sorted(found, key=order)}

    def load_state(self, learner: "Learner", tensors: Mapping[str, Tensor]) -> None:
        """Handed out to the owners."""
        self._all(learner, "load_state", own=(dict(tensors),))

    def reset(self, learner: "Learner") -> None:
        """Everywhere."""
        self._all(learner, "reset")

    def bytes(self, learner: "Learner") -> list[dict[str, int]]:
        """Of each learner, what it has between two steps."""
        found: list[dict[str, int]] = self._all(learner, "bytes")
        return found
