"""The gradient of an optimizer step by all learners of a cluster: the side of the run's own process."""

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from posttrain.cluster._forward import scored, signals
from posttrain.cluster._gang import dealt, join, types_of, work
from posttrain.cluster._references import dumps
from posttrain.cluster._session import MOST_REPLACED, Processes
from posttrain.cluster._sums import GroupBroken, Sums
from posttrain.errors import RunFailed
from posttrain.policies import Policy
from posttrain.signals import Signal
from posttrain.training.learner import Asked, InProcess, Loss, Slice
from posttrain.training.packing import MicroBatch

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.training.learner import Learner


class Gang(InProcess):
    """See `posttrain.training.learner.Workers`."""

    def __init__(self, session: Processes) -> None:
        self._session = session

    def slices(self, learner: "Learner", batches: Iterable[MicroBatch], loss: Loss, progress: float) -> Iterator[Slice]:
        """Slice k by learner k mod W; a learner that is killed is replaced, and the step computed again."""
        every = list(batches)
        begun = any(parameter.grad is not None for parameter in learner.parameters.values())
        scheduled = type(learner.policy).at is not Policy.at
        if scheduled:
            self._session.note(f"the {learner.policy.called} changes with the steps, so that one learner works alone")
        for _ in range(MOST_REPLACED + 1):
            self._session.admit(self._session.learners)
            size = len(self._session.learners) + 1
            parts = (
                None
                if begun or scheduled or len(every) < 2 or size == 1
                else self._parts(learner, every, loss, progress, size)
            )
            if parts is None:
                yield from super().slices(learner, every, loss, progress)
                return
            try:
                yield from self._together(learner, every, loss, progress, parts)
                return
            except GroupBroken as error:
                self._session.note(f"the learners' group was formed anew: {error}")
        raise RunFailed("the learners lost one another again and again; posttrain cluster check may show why")

    def signals(self, asked: Asked, batches: Iterable[MicroBatch]) -> Iterator[Mapping[Signal, "Tensor"]]:
        """Forward passes, in equal parts."""
        every = list(batches)
        if scored(self._session, asked, every):
            return signals(self._session, asked, every, "score")
        models = (asked.policy, *asked.others.values())
        if not self._session.learners or len(every) < 2 or any(type(policy).at is not Policy.at for policy in models):
            return super().signals(asked, every)
        return signals(self._session, asked, every)

    def _parts(
        self, learner: "Learner", every: Sequence[MicroBatch], loss: Loss, progress: float, size: int
    ) -> "tuple[list[bytes], list[Policy]] | None":
        """What each of the others gets, and the models that it needs; None for a loss that cannot be sent."""
        named: dict[int, Policy] = {}

        def name_of(policy: "Policy") -> str:
            named[id(policy)] = policy
            return self._session.name_of(policy)

        types, recompute = types_of(learner.parameters), learner.settings.recompute
        try:
            contents = [
                dumps(
                    (learner.policy, recompute, types, list(dealt(every, rank, size)), len(every), loss, progress),
                    name_of,
                    learner.policy,
                )
                for rank in range(1, size)
            ]
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            self._session.note(f"one learner works alone, since the loss cannot be sent: {error}")
            return None
        return contents, list(named.values())

    def _together(
        self,
        learner: "Learner",
        every: Sequence[MicroBatch],
        loss: Loss,
        progress: float,
        parts: "tuple[list[bytes], list[Policy]]",
    ) -> list[Slice]:
        """Once. Raises `GroupBroken` where a learner was lost; it has been replaced then."""
        session = self._session
        contents, policies = parts
        for policy in policies:
            session.publish(policy, "learn")
        if (size := len(session.learners) + 1) != len(contents) + 1:
            raise GroupBroken("a learner ended, and no place is free for another")
        group = self._group()
        weights = dict(learner.policy.named_parameters())
        types = types_of(learner.parameters)
        sums = Sums(group, 0, size, {name: weights[name] for name in types}, types)
        calls = [m.actor.slices.remote(content) for m, content in zip(session.learners, contents, strict=True)]
        try:
            own = dealt(every, 0, size)
            done, gradient = work(sums, learner.policy, list(types), own, len(every), loss, progress)
            for more in self._results(calls):
                done += more
        except BaseException as error:
            del sums, group
            self._leave(calls, error)
            raise
        for name, found in gradient.items():
            learner.parameters[name].grad = found
        return [piece for _, piece in sorted(done, key=lambda item: item[0])]

    def _group(self) -> Any:
        """The group of all learners, which lasts until one is lost."""
        import ray

        session = self._session
        if session.group is None:
            place, size, timeout = (
                session.meeting_place(session.learners),
                len(session.learners) + 1,
                session.settings.timeout,
            )
            calls = [m.actor.join.remote(place, i, size, timeout) for i, m in enumerate(session.learners, 1)]
            try:
                session.group = join(place, 0, size, timeout)
                ray.get(calls, timeout=timeout)
            except (RuntimeError, ray.exceptions.RayError) as error:
                session.group = None
                session.replace_dead(session.learners)
                raise GroupBroken(str(error).splitlines()[0]) from error
        return session.group

    def _results(self, calls: Sequence[Any]) -> list[Any]:
        import ray

        try:
            found: list[Any] = ray.get(list(calls), timeout=self._session.settings.timeout)
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError, ray.exceptions.ObjectLostError) as error:
            raise GroupBroken(str(error).splitlines()[0]) from error
        return found

    def _leave(self, calls: Sequence[Any], error: BaseException) -> None:
        """Dissolve the group. Raises what failed in a learner's own code, if that was the cause."""
        import ray

        session = self._session
        session.group = None
        for call in calls if isinstance(error, GroupBroken | ray.exceptions.RayTaskError) else ():
            try:
                ray.get(call, timeout=session.settings.timeout)
            except ray.exceptions.RayTaskError as failed:
                cause = getattr(failed, "cause", None)
                if not isinstance(cause, GroupBroken):
                    raise (cause or failed) from None
            except ray.exceptions.RayError:
                continue
        session.replace_dead(session.learners)
