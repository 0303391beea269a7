"""Calls of a step on the processes of a placement: the side of the run's own process.

Every process can do any call. A placement names the processes of each; a process that no call of a model names has no
copy of it. Calls that need nothing of one another go on at the same time where they have no process in common. The
run's own process does none of them: it has the optimizer, and updates the weights.

Weights are those of this process after an update. They go to the processes of a call before it begins, if they have
older ones: that is the reallocation of a model between the places where it is trained, and where it generates.
"""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posttrain.cluster import Result
from posttrain.cluster._forward import signals
from posttrain.cluster._gang import dealt, types_of
from posttrain.cluster._members import Member
from posttrain.cluster._placement import Placement
from posttrain.cluster._references import dumps
from posttrain.cluster._session import MOST_REPLACED
from posttrain.cluster._sums import GroupBroken
from posttrain.errors import RunFailed
from posttrain.policies import Policy
from posttrain.signals import Signal
from posttrain.training.learner import Asked, InProcess, Learner, Loss, Slice, Workers
from posttrain.training.packing import MicroBatch

if TYPE_CHECKING:
    from torch import Tensor


class PlacedSession(Placement):
    """See `posttrain.cluster.Session`."""

    def workers(self, learner: Learner) -> Workers:
        """Those of the placement; a role that one process trains is not sharded."""
        if self.settings.sharding == "none" or len(self.places("learn", learner.policy.role)) == 1:
            return PlacedWorkers(self)
        from posttrain.cluster._placed_parts import PlacedGang, PlacedParts

        self._parts = parts = self._parts if isinstance(self._parts, PlacedParts) else PlacedParts(self)
        parts.join()
        return PlacedGang(self, parts, learner)


class PlacedWorkers(InProcess):
    """See `posttrain.training.learner.Workers`."""

    def __init__(self, session: PlacedSession) -> None:
        self._session = session

    def together(self, works: Sequence[Callable[[], Result]]) -> list[Result]:
        """At the same time, by other processes."""
        return self._session.together(works)

    def signals(self, asked: Asked, batches: Iterable[MicroBatch]) -> Iterator[Mapping[Signal, "Tensor"]]:
        """By the processes that score."""
        every = list(batches)
        models = (asked.policy, *asked.others.values())
        if not every or any(type(policy).at is not Policy.at for policy in models):
            return super().signals(asked, every)
        with self._session.call("score", asked.policy):
            return signals(self._session, asked, every, "score")

    def slices(self, learner: Learner, batches: Iterable[MicroBatch], loss: Loss, progress: float) -> Iterator[Slice]:
        """By the processes that train; one that is killed is replaced, and the step computed again."""
        every = list(batches)
        begun = any(parameter.grad is not None for parameter in learner.parameters.values())
        parts = None if begun or not every else self._parts(learner, every, loss, progress)
        if parts is None:
            yield from super().slices(learner, every, loss, progress)
            return
        with self._session.call("train", learner.policy):
            done = self._done(learner, parts)
        yield from done

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
        head = policy, learner.settings.recompute, types
        try:
            contents = [
                dumps((*head, list(dealt(every, rank, size)), len(every), loss, progress), name_of, policy)
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
            place, timeout = session.meeting_place(members, is_here=False), session.settings.timeout
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
