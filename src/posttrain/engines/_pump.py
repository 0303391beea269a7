"""Continuous batching: a queue of requests, one decoding loop, and slots that are refilled as sequences finish.

    complete(...)  -->  waiting  -->  slots (a few tokens each) -->  completions --> the caller goes on
    score(...)     -->  scoring  -->  one pass of the learner's own forward      --> the caller goes on

First come, first served. A pump is one task of one event loop, alive while anything waits. It lets the loop run
between two steps, of one token each or a few, so that callers who got their answers ask for more before the next one;
the schedule is a function of the order of the requests. Between two steps nothing is half done, so that a caller may be
cancelled then.

The weights are the live ones. Keys and values live as long as the request that they were computed for, and the cache
as long as the pump. None outlives an update: an update while sequences are in progress is refused, because what they
would write comes from no version of the weights.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Any

import numpy as np
import torch

from posttrain.engines import Counters
from posttrain.engines._slots import Order, Piece, Slots, pack
from posttrain.errors import RunFailed
from posttrain.policies import Policy
from posttrain.signals import LOGP, Signal
from posttrain.types import Completion, FloatArray, IntArray


@dataclass(eq=False, kw_only=True)
class Request:
    """Completions that were asked for together, and are given back together."""

    order: Order
    keys: list[int]
    """One for each completion."""
    future: asyncio.Future[list[Completion]]
    begun: int = 0
    """Completions that have got a slot."""
    done: dict[int, Completion] = field(default_factory=dict)
    """By number of the completion."""


@dataclass(eq=False, kw_only=True)
class Scoring:
    """A sequence that was given to be judged."""

    sequence: Piece
    signal: Signal
    """The log-probability of every token but the first, or a reward head's score of the whole."""
    temperature: float
    future: asyncio.Future[FloatArray]

    @property
    def asked(self) -> tuple[Signal, float]:
        """What sequences must have in common to be judged in one pass."""
        return self.signal, self.temperature

    @property
    def positions(self) -> IntArray:
        """Tokens whose signal was asked for."""
        length = len(self.sequence)
        return np.arange(1 if self.signal == LOGP else length - 1, length)


class Pump:
    """What moves requests on, from the first one that finds nothing going on until nothing waits any more."""

    def __init__(self, policy: Policy, slots: int, prefill_tokens: int, count: Callable[[Counters], None]) -> None:
        self.loop = asyncio.get_running_loop()
        self._policy = policy
        self._size = slots
        self._prefill_tokens = prefill_tokens
        self._count = count
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[Request] = deque()  # those of which not all have begun: only of the first have some
        self._owners: dict[int, tuple[Request, int]] = {}  # by slot, with the number of the completion
        self._scoring: deque[Scoring] = deque()
        self._slots: Slots | None = None

    @property
    def busy(self) -> bool:
        """Whether anybody waits for an answer."""
        return bool(self._waiting or self._owners or self._scoring)

    @property
    def finished(self) -> bool:
        """Whether it has run and come to its end; a new one is needed then."""
        return self._task is not None and self._task.done()

    async def complete(self, order: Order, keys: list[int]) -> list[Completion]:
        """Write a completion for each key."""
        request = Request(order=order, keys=keys, future=self.loop.create_future())
        self._waiting.append(request)
        self._start()
        try:
            return await request.future
        except BaseException:  # cancelled, most often
            self._withdraw(request)
            raise

    async def score(self, sequence: Piece, signal: Signal, temperature: float = 1.0) -> FloatArray:
        """The signal of each token that it is defined for."""
        scoring = Scoring(sequence=sequence, signal=signal, temperature=temperature, future=self.loop.create_future())
        self._scoring.append(scoring)
        self._start()
        try:
            return await scoring.future
        except BaseException:
            if scoring in self._scoring:
                self._scoring.remove(scoring)
            raise

    def _start(self) -> None:
        if self._task is None:
            self._task = self.loop.create_task(self._run())

    def _withdraw(self, request: Request) -> None:
        """Free whatever a request holds."""
        if request in self._waiting:
            self._waiting.remove(request)
            if request.begun:
                self._opened().release(self._opened().stage)
        for slot in [slot for slot, (owner, _) in self._owners.items() if owner is request]:
            del self._owners[slot]
            self._opened().release(slot)

    async def _run(self) -> None:
        """Advance until nothing waits. Whatever ends this ends the waiting of every caller."""
        try:
            await self._advance_until_idle()
        except Exception as error:
            for future in self._futures():
                future.set_exception(error)
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            for future in self._futures():
                future.cancel()
            raise
        finally:
            self._waiting.clear()
            self._owners.clear()
            self._scoring.clear()
            self._slots = None

    async def _advance_until_idle(self) -> None:
        while self.busy:
            self._advance()
            await asyncio.sleep(0)
        if self._slots is not None:
            self._slots.close()

    def _futures(self) -> list[asyncio.Future[Any]]:
        """What callers still await."""
        requests = dict.fromkeys((*self._waiting, *(owner for owner, _ in self._owners.values())))
        futures: list[asyncio.Future[Any]] = [*(r.future for r in requests), *(s.future for s in self._scoring)]
        return [future for future in futures if not future.done()]

    @torch.no_grad()
    def _advance(self) -> None:
        """One scoring pass and one decoding step, where there is something to do."""
        if self._scoring:
            self._score()
        if self._waiting or self._owners:
            self._check_version(self._opened())
            self._admit(self._opened())
            self._step(self._opened())

    def _opened(self) -> Slots:
        """The slots, allocated when they are first needed."""
        if self._slots is None:
            self._slots = Slots(self._policy, self._size, self._prefill_tokens)
        return self._slots

    def _check_version(self, slots: Slots) -> None:
        """Raise when the weights changed under a sequence in progress."""
        if self._policy.version != slots.version and (self._owners or self._waiting[0].begun):
            raise RunFailed(
                f"role {self._policy.role} was updated from version {slots.version} to {self._policy.version} while "
                "completions were being written; await them before the update"
            )
        slots.version = self._policy.version

    def _admit(self, slots: Slots) -> None:
        """Give the free slots to the first in line, and compute their prompts."""
        free = slots.free()
        fresh: list[tuple[Request, int, list[int]]] = []
        while self._waiting and free:
            request = self._waiting[0]
            first = request.begun
            given = free[: len(request.keys) - first]
            del free[: len(given)]
            self._owners |= {slot: (request, first + i) for i, slot in enumerate(given)}
            request.begun += len(given)
            whole = request.begun == len(request.keys)
            if first:
                slots.begin(request.order, slots.stage, given, request.keys[first : request.begun])
            else:
                fresh.append((request, given[0] if whole else slots.stage, given))
            if whole:
                self._waiting.popleft()
                slots.release(slots.stage)  # nothing is in it unless this request's prompt is
        slots.prefill([(source, request.order.prompt) for request, source, _ in fresh])
        for request, source, given in fresh:
            slots.begin(request.order, source, given, request.keys[: len(given)])
        self._count(Counters(prompt_tokens=sum(len(request.order.prompt) for request, _, _ in fresh)))

    def _step(self, slots: Slots) -> None:
        """Write on every sequence in progress, and answer the requests that are complete."""
        done = slots.step()
        places = done.steps * slots.size
        self._count(
            Counters(
                sampled_tokens=done.tokens,
                completions=len(done.finished),
                decode_steps=done.steps,
                slot_steps=places,
            )
        )
        for slot, completion in done.finished.items():
            request, number = self._owners.pop(slot)
            request.done[number] = completion
            if len(request.done) == len(request.keys) and not request.future.done():
                request.future.set_result([request.done[i] for i in range(len(request.keys))])

    def _score(self) -> None:
        """Answer the first in line, and those behind it that fit in the same pass."""
        first = self._scoring[0]
        tokens = accumulate(len(scoring.sequence) for scoring in self._scoring)
        fits = takewhile(
            lambda pair: pair[0].asked == first.asked and pair[1] <= self._prefill_tokens,
            zip(self._scoring, tokens, strict=True),
        )
        batch = [scoring for scoring, _ in fits] or [first]
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
