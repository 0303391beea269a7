"""A model that is sampled by the actors of a cluster.

A request goes to the actor with the fewest completions to write. A completion is a function of weights, prompt,
settings and key, so that it does not matter which; and when one is killed, another is asked again with the same keys.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from posttrain.cluster._members import Member
from posttrain.cluster._session import Processes
from posttrain.engines import Counters, Sampling, Watch, driver
from posttrain.engines._continuous import ContinuousServer
from posttrain.errors import UserError
from posttrain.types import Array, Completion, FloatArray, IntArray

if TYPE_CHECKING:
    from posttrain.policies import Policy


@dataclass(frozen=True)
class Held:
    """What samples beside the learner: copies of the models with the weights of its start."""

    names: Mapping[int, str]
    """Of the copies, by the identity of the model."""
    counters: dict[int, Counters] = field(default_factory=dict)
    """Of its requests, by the identity of the model."""


HELD: ContextVar[Held | None] = ContextVar("held", default=None)
"""Set in what samples beside the learner."""


def held_now() -> Held | None:
    """Of what lets the running loop go on."""
    return driver().get(HELD)


class ClusterServer(ContinuousServer):
    """See `posttrain.engines.Server`. Requests are checked here, before they are sent."""

    def __init__(self, session: Processes, policy: "Policy", seed: int, local: ContinuousServer) -> None:
        super().__init__(policy, seed, slots=local._slots, prefill_tokens=local._prefill_tokens)
        self._session = session
        self._total = Counters()
        self._pending = 0
        self._began = 0.0

    @property
    def counters(self) -> Counters:
        """Of what is sampled beside the learner, to that; else of all other requests."""
        held = held_now()
        return self._total if held is None else held.counters.get(id(self.policy), Counters())

    @counters.setter
    def counters(self, counters: Counters) -> None:
        held = held_now()
        if held is None:
            self._total = counters
        else:
            held.counters[id(self.policy)] = counters

    async def complete(
        self,
        token_ids: IntArray,
        keys: list[int],
        sampling: Sampling,
        vectors: FloatArray | None = None,
        watch: Watch | None = None,
    ) -> list[Completion]:
        """Completions by the sampler with the shortest queue; watched ones are written in this process."""
        if watch is not None and held_now() is not None:
            raise UserError(
                "completions that are constrained while they are written come from the run's own process, whose "
                "weights change meanwhile; leave the schedule out"
            )
        if watch is not None:
            return await super().complete(token_ids, keys, sampling, vectors, watch)
        self._request(token_ids, vectors, sampling, Watch())
        if not keys:
            return []
        found: list[Completion] = await self._ask(
            len(keys), lambda name, due, actor: actor.complete.remote(name, due, token_ids, keys, sampling, vectors)
        )
        return self._counted(token_ids, found)

    async def go_on(
        self,
        token_ids: IntArray,
        keys: list[int],
        sampling: Sampling,
        vectors: FloatArray | None = None,
        stored: Sequence[Array] | None = None,
    ) -> list[Completion]:
        """By the sampler with the shortest queue; keys and values go with the text, to any sampler."""
        self._request(token_ids, vectors if stored is None else None, sampling, Watch())
        if not keys:
            return []
        found: list[Completion] = await self._ask(
            len(keys),
            lambda name, due, actor: actor.go_on.remote(name, due, token_ids, keys, sampling, vectors, stored),
        )
        return self._counted(token_ids, found, reused=0 if stored is None else len(token_ids) - 1)

    def _counted(self, token_ids: IntArray, found: list[Completion], reused: int = 0) -> list[Completion]:
        self._count(
            Counters(
                sampled_tokens=sum(len(completion.token_ids) for completion in found),
                prompt_tokens=len(token_ids) - reused,
                reused_tokens=reused,
                completions=len(found),
            )
        )
        return found

    async def logp(self, token_ids: IntArray, temperature: float, vectors: FloatArray | None = None) -> FloatArray:
        """Log-probabilities by the sampler with the shortest queue."""
        if len(token_ids) < 2 or not temperature > 0:
            return await super().logp(token_ids, temperature, vectors)
        self._piece(token_ids, vectors, reserved=0)
        found: FloatArray = await self._ask(
            1, lambda name, due, actor: actor.logp.remote(name, due, token_ids, temperature, vectors)
        )
        self._count(Counters(scored_tokens=len(token_ids) - 1))
        return found

    async def score(self, token_ids: IntArray, vectors: FloatArray | None = None) -> float:
        """A score by the sampler with the shortest queue."""
        self._piece(token_ids, vectors, reserved=0)
        found: float = await self._ask(1, lambda name, due, actor: actor.score.remote(name, due, token_ids, vectors))
        self._count(Counters(scored_tokens=len(token_ids) - 1))
        return found

    async def scores(self, token_ids: IntArray, vectors: FloatArray | None = None) -> FloatArray:
        """All outputs by the sampler with the shortest queue."""
        self._piece(token_ids, vectors, reserved=0)
        found: FloatArray = await self._ask(
            1, lambda name, due, actor: actor.scores.remote(name, due, token_ids, vectors)
        )
        self._count(Counters(scored_tokens=len(token_ids) - 1))
        return found

    async def _ask(self, size: int, call: Callable[[str, Any, Any], Any]) -> Any:
        """The answer of a sampler; of another one where it is killed meanwhile."""
        session, held = self._session, held_now()
        if held is not None:
            return await self._asked(held.names[id(self.policy)], size, call)
        if not self._pending:
            self._began = time.monotonic()
            session.publish(self.policy, "sample")
        self._pending += 1
        try:
            return await self._asked(session.name_of(self.policy), size, call)
        finally:
            self._pending -= 1
            if not self._pending:
                session.called("generate", self.policy, time.monotonic() - self._began)

    async def _asked(self, name: str, size: int, call: Callable[[str, Any, Any], Any]) -> Any:
        import ray

        session = self._session
        while True:
            with session.counting:
                member = min(session.members("sample", self.policy), key=lambda m: (m.load, m.number))
                member.load += size
                due = member.due.get(name)
            began = time.monotonic()
            try:
                found = await call(name, due, member.actor)
                session.answered(member, time.monotonic() - began)
                session.taken(member, due, found.seconds)
                return found.answer
            except ray.exceptions.ObjectLostError:
                continue  # it was in the memory of a node that is gone
            except ray.exceptions.RayTaskError as error:
                raise getattr(error, "cause", None) or error from None
            except ray.exceptions.RayActorError as error:
                self._replace(member, str(error).splitlines()[0])
            finally:
                with session.counting:
                    member.load -= size

    def _replace(self, member: Member, why: str) -> None:
        """Put a new process in the place of a sampler, unless another request did so."""
        session = self._session
        with session.counting:
            if member in session.samplers:
                session.replace(session.samplers, member, why)
