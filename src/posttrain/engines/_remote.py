"""A policy that servers of other programs sample: requests, weights on their way, and what is checked of answers."""

import asyncio
import hashlib
import time
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import numpy as np
import torch

from posttrain.engines import Counters, Sampling, Server, Watch
from posttrain.engines._addressed import Settings, check_sampling, connect, pause
from posttrain.engines._continuous import ContinuousServer
from posttrain.engines._phases import Phases
from posttrain.engines._protocol import Answer, Asked, Link, Place, Unanswered, together
from posttrain.engines._requests import Request
from posttrain.engines._stopping import StopStrings
from posttrain.engines.native import Native
from posttrain.errors import AlarmStop, RunFailed, UserError
from posttrain.errors.temporary import make_temporary, remove_temporary, remove_tree
from posttrain.types import Array, Completion, FloatArray, IntArray, StopReason

if TYPE_CHECKING:
    from posttrain.policies import Policy


def serve(engine: Settings, policy: "Policy", seed: int, phases: Phases | None = None) -> Server:
    """The servers for the policy, this process for any other model. Without `phases` weights go as a folder."""
    local = Native().serve(policy, seed)
    if policy.role != "policy":
        return local
    if not isinstance(local, ContinuousServer):
        raise UserError(f"engine={engine.kind}: the {policy.called} in the role 'policy' writes no text")
    return RemoteServer(engine, policy, seed, local, phases)


class RemoteServer(ContinuousServer):
    """A policy that servers sample. Requests are checked here, before they are sent."""

    def __init__(
        self, engine: Settings, policy: "Policy", seed: int, local: ContinuousServer, phases: Phases | None = None
    ) -> None:
        super().__init__(policy, seed, slots=local._slots, prefill_tokens=local._prefill_tokens)
        self._engine, self._phases = engine, phases
        self._places = [Place(address, number) for number, address in enumerate(engine.servers)]
        self._weights = _Weights(engine, policy)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: tuple[httpx2.AsyncClient, asyncio.Future[None]] | None = None
        self._pending = 0
        self._notes: list[str] = []
        self._timing = dict[str, float]()

    def take_notes(self) -> list[str]:
        """What a person should know of what happened since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def take_timing(self) -> Mapping[str, float]:
        """Bytes and seconds of changes of weights since the last call."""
        timing, self._timing = self._timing, {}
        return timing

    async def complete(
        self,
        token_ids: IntArray,
        keys: list[int],
        sampling: Sampling,
        vectors: FloatArray | None = None,
        watch: Watch | None = None,
    ) -> list[Completion]:
        """Completions by the servers; watched ones are written in this process."""
        if watch is not None:
            return await super().complete(token_ids, keys, sampling, vectors, watch)
        request = self._request(token_ids, vectors, sampling, Watch())
        check_sampling(self._engine, sampling)
        if vectors is not None:
            raise UserError(f"engine={self._engine.kind} takes tokens only, and this prompt has vectors")
        if not keys:
            return []
        async with self._session() as client:
            found = await together([self._one(client, request, key) for key in keys])
        sampled = sum(len(completion.token_ids) for completion in found)
        self._count(Counters(sampled_tokens=sampled, prompt_tokens=len(token_ids), completions=len(found)))
        return found

    async def go_on(
        self,
        token_ids: IntArray,
        keys: list[int],
        sampling: Sampling,
        vectors: FloatArray | None = None,
        stored: Sequence[Array] | None = None,
    ) -> list[Completion]:
        """Raises `UserError`."""
        raise UserError(f"engine={self._engine.kind} gives no keys and values; take schedule.caches=renewed")

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Connections while requests are pending. The first of several has the servers get the weights of now."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._open, self._pending = loop, None, 0
        self._pending += 1
        if self._open is None:
            client = connect(self._engine)
            self._open = client, loop.create_task(self._publish(client))
        client, ready = self._open
        try:
            await asyncio.shield(ready)
            yield client
        finally:
            self._pending -= 1
            if not self._pending:
                self._open = None
                if not ready.done():
                    ready.cancel()
                await client.aclose()

    # Weights

    async def _publish(self, client: httpx2.AsyncClient) -> None:
        """Make all servers have the weights as they are now. Raises `AlarmStop` where none is left."""
        began = time.monotonic()
        label = self._weights.now()
        if label == self._weights.given:
            return
        if self._phases is not None:
            size = await self._broadcast(self._phases, client, label)
        else:
            with self._weights.written(label) as (folder, size):
                await together([self._give(self._link(place, client), folder, label) for place in self._places])
        self._alive()
        self._weights.given = label
        spent = {"weight_bytes": float(size), "seconds_weights": time.monotonic() - began}
        self._timing = {name: self._timing.get(name, 0.0) + value for name, value in spent.items()}

    async def _give(self, link: Link, folder: Path, label: str) -> None:
        place, protocol = link.place, self._engine.protocol
        try:
            if place.gone:
                await protocol.check(link)
            await protocol.give(link, folder, label)
            found = await protocol.label(link)
        except Unanswered as error:
            self._leave_out(place, f"it did not take the weights: {error}")
            return
        self._has_taken(link, label, found)

    def _has_taken(self, link: Link, label: str, found: str) -> None:
        place = link.place
        if found != label:
            raise RunFailed(f"{link.named} was given the weights {label}, and reports {found}")
        if place.gone:
            self._notes.append(f"{link.named} is used again")
        place.gone, place.failures = "", 0

    async def _broadcast(self, phases: Phases, client: httpx2.AsyncClient, label: str) -> int:
        """Give the weights to all servers that answer, together; bytes to each."""
        links = [self._link(place, client) for place in self._places]
        had = await together([self._paused(phases, link) for link in links])
        links = [link for link, own in zip(links, had, strict=True) if own is not None]
        if not links:
            return 0
        size = await phases.give(links, label, anew=any(own not in (None, self._weights.given) for own in had))
        for link in links:
            self._has_taken(link, label, await self._engine.protocol.label(link))
        return size

    async def _paused(self, phases: Phases, link: Link) -> str | None:
        """The label that a server has, which has paused; None for one that does not answer."""
        try:
            if link.place.gone:
                await self._engine.protocol.check(link)
            return await phases.pause(link)
        except Unanswered as error:
            self._leave_out(link.place, f"it did not pause for the weights: {error}")
            return None

    def _leave_out(self, place: Place, why: str) -> None:
        if not place.gone:
            self._notes.append(f"the {self._engine.protocol.program} server {place.address} is left out: {why}")
        place.gone = why

    def _alive(self) -> list[Place]:
        """The servers that are used. Raises `AlarmStop` where there is none."""
        alive = [place for place in self._places if not place.gone]
        if not alive:
            reasons = "; ".join(f"{place.address}: {place.gone}" for place in self._places)
            raise AlarmStop(
                f"no {self._engine.protocol.program} server is left ({reasons}). No partly sampled step was learned "
                "from: start them again and resume the run; it gives them its weights"
            )
        return alive

    def _link(self, place: Place, client: httpx2.AsyncClient) -> Link:
        return Link(place, client, self._engine.protocol.program)

    # Completions

    async def _one(self, client: httpx2.AsyncClient, request: Request, key: int) -> Completion:
        """The completion of a key, by whichever server answers."""
        sent = 0
        while True:
            place = min(self._alive(), key=lambda place: (place.load, place.number))
            link = self._link(place, client)
            place.load += 1
            try:
                answer = await self._answer(link, request, key, sent)
            except Unanswered as error:
                place.failures += 1
                if place.failures > self._engine.retries:
                    self._leave_out(place, str(error))
                else:
                    await asyncio.sleep(pause(self._engine, place.failures - 1))
                sent += 1
                continue
            finally:
                place.load -= 1
            place.failures = 0
            self._check_version(link, answer)
            if place.compared != self._weights.given:
                place.compared = self._weights.given
                await self._compare(link, request, answer)
            return self._completion(link, request, answer)

    async def _answer(self, link: Link, request: Request, key: int, sent: int) -> Answer:
        protocol = self._engine.protocol
        asked = Asked(
            key=key,
            sent=sent,
            token_ids=request.prompt.token_ids.tolist(),
            end_token_ids=request.stop_token_ids.tolist(),
            max_tokens=request.max_tokens,
            sampling=request.sampling,
        )
        body = await link.post(protocol.generate, protocol.request(asked))
        try:
            answer = protocol.answer(body)
        except (LookupError, TypeError, ValueError) as error:
            raise UserError(
                f"{link.named} answers {protocol.generate} in another form: {type(error).__name__} {error}"
            ) from None
        if answer.finish == "abort":
            raise Unanswered("it ended the request without a completion")
        size = self.policy.body.vocabulary_size
        if not answer.token_ids or len(answer.token_ids) != len(answer.logp) or max(answer.token_ids) >= size:
            raise UserError(
                f"{link.named} answers {len(answer.token_ids)} tokens with {len(answer.logp)} log-probabilities, ids "
                f"up to {max(answer.token_ids, default=0)}; the policy's are below {size}. Does it serve another model?"
            )
        return answer

    def _check_version(self, link: Link, answer: Answer) -> None:
        if answer.versions != {self._weights.given}:
            found = ", ".join(sorted(answer.versions)) or "no version"
            raise AlarmStop(
                f"{link.named} sampled with the weights '{found}', and was given '{self._weights.given}': it was "
                "started again, or something else changes its weights. Nothing of this step was learned from: see that "
                "nothing else does, and resume the run; it gives the weights again"
            )

    async def _compare(self, link: Link, request: Request, answer: Answer) -> None:
        """Compare log-probabilities of an answer with those of the same tokens here. Raises `UserError`."""
        prompt = request.prompt.token_ids
        both = np.concatenate([prompt, np.array(answer.token_ids, np.int64)])
        own = (await self.logp(both, request.sampling.temperature or 1.0))[len(prompt) - 1 :]
        gap = float(np.abs(own - np.array(answer.logp)).mean())
        if not gap <= self._engine.tolerance:
            raise UserError(
                f"the log-probabilities of {link.named} differ by {gap:.3g} nats a token from those that this process "
                f"computes for the same {len(own)} tokens; engine.tolerance is {self._engine.tolerance:g}. It serves "
                "another model, did not load the weights, or returns log-probabilities of another kind "
                f"(engine.logprobs={self._engine.logprobs})"
            )

    def _completion(self, link: Link, request: Request, answer: Answer) -> Completion:
        """The answer as a completion, which ends where one of this process would."""
        decode, ends = self.policy.tokenizer.decode, set(request.stop_token_ids.tolist())
        watched = StopStrings(request.sampling.stop, decode) if request.sampling.stop else None
        ids, text, ended = list(answer.token_ids), None, False
        for place, token in enumerate(ids):
            text, ended = watched.push(token) if watched else None, token in ends
            if text is not None or ended:
                ids = ids[: place + 1]
                break
        reason: StopReason = "length" if text is None and not ended else "stop"
        if reason == "length" and len(ids) != request.max_tokens:
            raise UserError(
                f"{link.named} ended a completion after {len(ids)} of {request.max_tokens} tokens ({answer.finish}), "
                "at none of the ends that it was given: its context may be shorter than the policy's "
                f"({self.policy.body.context} tokens), or it serves another model"
            )
        return Completion(
            token_ids=np.array(ids, np.int64),
            logp=np.array(answer.logp[: len(ids)], np.float32),
            stop_reason=reason,
            version=self.policy.version,
            text=decode(np.array(ids[:-1] if ended else ids, np.int64)) if text is None else text,
        )


class _Weights:
    """The weights of a policy on their way to servers."""

    def __init__(self, engine: Settings, policy: "Policy") -> None:
        self._policy = policy
        self._root = Path(engine.folder).absolute() if engine.folder else None
        self.given = ""
        """The label of what all servers have that are used."""

    def now(self) -> str:
        """The label of the weights as they are."""
        digest = hashlib.blake2b(digest_size=8)
        for _, tensor in self._policy.named_parameters():
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
        return f"{self._policy.version}-{digest.hexdigest()}"

    @contextmanager
    def written(self, label: str) -> Iterator[tuple[Path, int]]:
        """Inside, the folder of the weights, and its bytes."""
        if self._root is None:
            self._root = make_temporary("weights")
            weakref.finalize(self, remove_temporary, self._root)
        folder = self._root / f"weights-{label}"
        self._policy.save(folder)
        try:
            yield folder, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        finally:
            remove_tree(folder)
