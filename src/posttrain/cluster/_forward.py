"""Forward passes by all learners of a cluster, or all scorers, in equal parts of the micro-batches, in order."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from posttrain.cluster._references import dumps
from posttrain.cluster._session import MOST_REPLACED, Processes, Use
from posttrain.cluster.dispatch import Group, Member
from posttrain.errors import RunFailed
from posttrain.signals import Signal
from posttrain.training.learner import Asked
from posttrain.training.packing import MicroBatch

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.policies import Policy


@dataclass(frozen=True)
class _Far:
    """A learner that is an actor."""

    actor: Any
    asked: Asked
    name_of: "Callable[[Policy], str]"

    def call(self, method: str, argument: Any) -> Any:
        """Begin; a future."""
        return getattr(self.actor, method).remote(dumps((self.asked, argument), self.name_of))


@dataclass(frozen=True)
class _Here:
    """The first learner: this process, which begins when all others have."""

    asked: Asked

    def call(self, method: str, argument: Any) -> Any:
        """Do it."""
        return [self.asked.of(batch) for batch in argument]


def signals(
    session: Processes, asked: Asked, every: Sequence[MicroBatch], use: Use = "learn"
) -> Iterator[Mapping[Signal, "Tensor"]]:
    """What `posttrain.training.learner.Workers.signals` promises, by all learners, of whom this process does the last
    part, or by the scorers alone.

    Parts are padded with the last micro-batch: it is computed twice, at the same time as another one, and cut off.
    """
    import ray

    for _ in range(MOST_REPLACED + 1):
        if use == "score":
            session.admit(session.scorers)
        for policy in (asked.policy, *asked.others.values()):
            session.publish(policy, use, asked.policy)
        limit = session.settings.timeout * len(every)
        members: list[Member] = [_Far(m.actor, asked, session.name_of) for m in session.members(use, asked.policy)]
        if use == "learn":
            members.append(_Here(asked))
        try:
            found: Sequence[Any] = Group(members=members, wait=partial(_opened, limit)).call(
                "signals", every, "split", "last"
            )
        except ray.exceptions.RayTaskError as error:
            raise getattr(error, "cause", None) or error from None
        except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError, ray.exceptions.ObjectLostError):
            session.replace_dead(session.members(use, asked.policy))
            continue
        return iter(found)
    raise RunFailed("processes ended again and again; posttrain cluster check may show why")


def _opened(limit: float, parts: Sequence[Any]) -> list[Any]:
    import ray

    return [ray.get(part, timeout=limit) if isinstance(part, ray.ObjectRef) else part for part in parts]


def scored(session: Processes, asked: Asked, every: Sequence[MicroBatch]) -> bool:
    """Whether scorers have this model: there are some, and it is not trained."""
    policies = (asked.policy, *asked.others.values())
    trained = any(p.requires_grad for policy in policies for p in policy.parameters())
    return bool(session.scorers and every and not trained)
