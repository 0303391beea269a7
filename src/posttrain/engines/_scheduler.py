"""Continuous batching: a queue of requests, one decoding loop, and slots that are refilled as sequences finish.

    complete(...)  -->  waiting  -->  slots (a few tokens each per step)    -->  completions
    score(...)     -->  scoring  -->  one forward pass, as in training      -->  signals

First come, first served. A scheduler is of one event loop, with a task while requests are pending. Between two
steps, of one token each or a few, it yields to the loop, so that callers that were answered can send the next request
before the next step. The schedule is a function of the order of the requests. Between two steps the state is
consistent, so that a caller can be cancelled then.

The weights are the live ones. Keys and values of a request stay, up to a bound, for those that go on from it or begin
alike, also while no request is pending: a conversation's next turn. None outlives an update: an update while sequences
are in progress is refused, because their completions would come from a mix of two versions of the weights.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile
from typing import Any

import numpy as np
import torch

from posttrain.engines import Counters, Written
from posttrain.engines._passes import Piece, pack
from posttrain.engines._prefixes import packed_once
from posttrain.engines._requests import Request
from posttrain.engines._slots import Slots, Step
from posttrain.engines._truncation import log_totals
from posttrain.errors import RunFailed
from posttrain.policies import Policy
from posttrain.signals import LOGP, Signal
from posttrain.types import Completion, FloatArray, IntArray

AT_A_TIME = 16
"""Sequences whose logits of the next token are there at a time: as many rows as the decoder computes at least."""


@dataclass(eq=False, kw_only=True)
class PendingRequest:
    """A request that is waiting or in progress; its completions are returned together."""

    request: Request
    keys: list[int]
    """One per completion."""
    future: asyncio.Future[list[Completion]]
    started: int = 0
    """Completions that have a slot, or had one."""
    done: dict[int, Completion] = field(default_factory=dict)
    """By index of the completion."""


@dataclass(eq=False, kw_only=True)
class PendingScore:
    """A sequence whose log-probabilities or score are requested."""

    sequence: Piece
    signal: Signal
    """The log-probability of every token but the first, or a reward head's score of the whole."""
    temperature: float
    future: asyncio.Future[FloatArray]
    choices: tuple[int, ...] | None = None
    """Tokens whose log-probabilities after the whole sequence are requested instead."""

    @property
    def batch_key(self) -> tuple[Signal, float, bool]:
        """Sequences with equal keys can be evaluated in one pass."""
        return self.signal, self.temperature, self.choices is None

    @property
    def positions(self) -> IntArray:
        """Tokens whose signal is requested."""
        length = len(self.sequence)
        return np.arange(1 if self.signal == LOGP else length - 1, length)


class Scheduler:
    """Runs requests, from the first one that arrives while it is idle until none is pending."""

    def __init__(
        self,
        policy: Policy,
        slots: int,
        prefill_tokens: int,
        count: Callable[[Counters], None],
        prefix_bytes: int = 0,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._policy = policy
        self._size = slots
        self._prefill_tokens = prefill_tokens
        self._count = count
        self._prefix_bytes = prefix_bytes
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[PendingRequest] = deque()  # only the first may have some completions started
        self._owners: dict[int, tuple[PendingRequest, int]] = {}  # by slot, with the index of the completion
        self._scoring: deque[PendingScore] = deque()
        self._slots: Slots | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is pending."""
        return bool(self._waiting or self._owners or self._scoring)

    @property
    def prefix_bytes_held(self) -> int:
        """Bytes of what is kept for later requests."""
        return 0 if self._slots is None else self._slots.prefix_bytes_held

    def close(self) -> None:
        """Free what is kept for later requests, unless one is pending."""
        if self._slots is not None and not self.busy:
            self._slots.close()
            self._slots = None

    async def complete(self, request: Request, keys: list[int]) -> list[Completion]:
        """Sample a completion for each key."""
        pending = PendingRequest(request=request, keys=keys, future=self.loop.create_future())
        self._waiting.append(pending)
        self._start()
        try:
            return await pending.future
        except BaseException:  # usually a cancellation
            self._withdraw(pending)
            raise

    async def score(
        self, sequence: Piece, signal: Signal, temperature: float = 1.0, choices: tuple[int, ...] | None = None
    ) -> FloatArray:
        """The signal of each token for which it is defined, or the log-probability of each of several next tokens."""
        future: asyncio.Future[FloatArray] = self.loop.create_future()
        scoring = PendingScore(
            sequence=sequence, signal=signal, temperature=temperature, future=future, choices=choices
        )
        self._scoring.append(scoring)
        self._start()
        try:
            return await scoring.future
        except BaseException:
            if scoring in self._scoring:
                self._scoring.remove(scoring)
            raise

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = self.loop.create_task(self._run())
            self._task.add_done_callback(_retrieved)

    def _withdraw(self, pending: PendingRequest) -> None:
        """Free the slots of a request."""
        if pending in self._waiting:
            self._waiting.remove(pending)
            if pending.started:
                self._opened().release(self._opened().stage)
        for slot in [slot for slot, (owner, _) in self._owners.items() if owner is pending]:
            del self._owners[slot]
            self._opened().release(slot)

    async def _run(self) -> None:
        """Advance until no request is pending. An error or a cancellation is passed to every caller."""
        try:
            await self._advance_until_idle()
        except Exception as error:
            self._slots = None
            for future in self._futures():
                future.set_exception(error)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            self._slots = None
            for future in self._futures():
                future.cancel()
            raise
        finally:
            self._waiting.clear()
            self._owners.clear()
            self._scoring.clear()

    async def _advance_until_idle(self) -> None:
        while self.busy:
            self._advance()
            await asyncio.sleep(0)
        if self._slots is not None and self._slots.keeps:
            self._slots.rest()
        else:
            self.close()

    def _futures(self) -> list[asyncio.Future[Any]]:
        """Futures that callers still await."""
        requests = dict.fromkeys((*self._waiting, *(owner for owner, _ in self._owners.values())))
        futures: list[asyncio.Future[Any]] = [*(r.future for r in requests), *(s.future for s in self._scoring)]
        return [future for future in futures if not future.done()]

    @torch.no_grad()
    def _advance(self) -> None:
        """One scoring pass and one decoding step, where requests for them are pending."""
        if self._scoring:
            self._score()
        if self._waiting or self._owners:
            self._check_version(self._opened())
            self._admit(self._opened())
            self._step(self._opened())

    def _opened(self) -> Slots:
        """The slots, allocated at first use, and anew for another version of the weights."""
        if self._slots is not None and self._slots.version != self._policy.version and not self._in_progress:
            self._slots.close()
            self._slots = None
        if self._slots is None:
            self._slots = Slots(self._policy, self._size, self._prefill_tokens, self._prefix_bytes)
        return self._slots

    @property
    def _in_progress(self) -> bool:
        """Whether tokens of a request are in the cache."""
        return bool(self._owners or (self._waiting and self._waiting[0].started))

    def _check_version(self, slots: Slots) -> None:
        """Raise when the weights changed under a sequence in progress."""
        if self._policy.version != slots.version:
            raise RunFailed(
                f"role {self._policy.role} was updated from version {slots.version} to {self._policy.version} while "
                "completions were being sampled; await them before the update"
            )

    def _admit(self, slots: Slots) -> None:
        """Give free slots to waiting requests in order of arrival, and compute their prompts."""
        if not self._in_progress:
            slots.renew()
        free, room = slots.free(), slots.room()
        fresh: list[tuple[PendingRequest, int, list[int]]] = []
        while self._waiting and free:
            pending = self._waiting[0]
            first = pending.started
            given = free[: room.take(pending.request, min(len(pending.keys) - first, len(free)), begun=bool(first))]
            if not given:
                break
            del free[: len(given)]
            self._owners |= {slot: (pending, first + i) for i, slot in enumerate(given)}
            pending.started += len(given)
            whole = pending.started == len(pending.keys)
            if first:
                slots.start(pending.request, slots.stage, given, pending.keys[first : pending.started])
            else:
                fresh.append((pending, given[0] if whole else slots.stage, given))
            if whole:
                self._waiting.popleft()
                slots.release(slots.stage)  # it is empty unless it holds this request's prompt
        taken = slots.prefill([(source, pending.request) for pending, source, _ in fresh])
        for pending, source, given in fresh:
            slots.start(pending.request, source, given, pending.keys[: len(given)])
        tokens, reused = sum(len(pending.request.prompt) for pending, _, _ in fresh), sum(taken)
        self._count(
            Counters(prompt_tokens=tokens - reused, reused_tokens=reused, reusing_prompts=sum(n > 0 for n in taken))
        )

    def _step(self, slots: Slots) -> None:
        """Decode every sequence in progress, and answer the requests that are complete."""
        result = slots.step()
        slot_steps = result.steps * slots.size
        self._count(
            Counters(
                sampled_tokens=result.tokens,
                completions=len(result.finished),
                decode_steps=result.steps,
                slot_steps=slot_steps,
                dropped_prefix_tokens=slots.take_dropped(),
            )
        )
        self._tell(result)
        for slot, error in result.failed.items():
            if slot in self._owners:
                pending, _ = self._owners[slot]
                self._withdraw(pending)
                if not pending.future.done():
                    pending.future.set_exception(error)
        for slot, completion in result.finished.items():
            if slot not in self._owners:  # another completion of its request failed in this step
                continue
            pending, number = self._owners.pop(slot)
            pending.done[number] = completion
            if len(pending.done) == len(pending.keys) and not pending.future.done():
                pending.future.set_result([pending.done[i] for i in range(len(pending.keys))])

    def _tell(self, result: Step) -> None:
        """Call those who listen, once for each request."""
        heard: dict[PendingRequest, list[Written]] = {}
        for slot, written in result.written.items():
            pending, number = self._owners[slot]
            heard.setdefault(pending, []).append(replace(written, number=number, completion=result.finished.get(slot)))
        for pending, several in heard.items():
            listen = pending.request.watch.listen
            assert listen is not None, "it has a listener"
            listen(several)

    def _score(self) -> None:
        """Answer the first waiting sequence, and the following ones that fit into the same pass."""
        first = self._scoring[0]
        tokens = accumulate(len(scoring.sequence) for scoring in self._scoring)
        fits = takewhile(
            lambda pair: pair[0].batch_key == first.batch_key and pair[1] <= self._prefill_tokens,
            zip(self._scoring, tokens, strict=True),
        )
        batch = [scoring for scoring, _ in fits] or [first]
        if first.choices is not None:
            self._choose(batch)
            return
        packed = pack([scoring.sequence for scoring in batch], next(self._policy.parameters()).device)
        positions = [begin + scoring.positions for begin, scoring in zip(packed.starts, batch, strict=False)]
        position_T = torch.from_numpy(np.concatenate(positions)).to(packed.token_ids_L.device)
        needs = frozenset({first.signal})
        signals = self._policy.evaluate(packed, position_T, needs, temperature=first.temperature)
        signal_T = signals[first.signal].to("cpu", torch.float32).numpy()
        self._count(Counters(scored_tokens=sum(len(scoring.sequence) - 1 for scoring in batch)))
        ends = np.cumsum([len(p) for p in positions])[:-1]
        for scoring, values in zip(batch, np.split(signal_T, ends), strict=True):
            self._scoring.popleft()
            if not scoring.future.done():
                scoring.future.set_result(values.copy())

    def _choose(self, batch: Sequence[PendingScore]) -> None:
        """Answer sequences of which only the next token matters: shared prefixes once, logits of last places only."""
        body, device = self._policy.body, next(self._policy.parameters()).device
        sequences = [scoring.sequence.token_ids for scoring in batch]
        packed, ends = packed_once(sequences, device, shares=body.shares_prompts)
        last_BD = body.hidden(packed).index_select(0, torch.tensor(ends, device=device))
        self._count(Counters(scored_tokens=sum(map(len, sequences))))
        for begin in range(0, len(batch), AT_A_TIME):
            part = batch[begin : begin + AT_A_TIME]
            logits_BV = body.logits(last_BD[begin : begin + AT_A_TIME])
            largest_B1, log_total_B1 = log_totals(logits_BV, part[0].temperature)
            for scoring, logits_V, largest, log_total in zip(part, logits_BV, largest_B1, log_total_B1, strict=True):
                logit_K = logits_V[list(scoring.choices or ())].double().cpu().numpy()
                logp_K = (logit_K - float(largest)) / scoring.temperature - float(log_total)
                self._scoring.popleft()
                if not scoring.future.done():
                    scoring.future.set_result(np.asarray(logp_K, np.float32))


def _retrieved(task: asyncio.Task[None]) -> None:
    """Take the interrupt that ended a task, which the loop has raised already, so that it is not logged once more."""
    if not task.cancelled():
        task.exception()
