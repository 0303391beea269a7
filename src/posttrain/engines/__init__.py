"""Inference engines: token ids in, completions and log-probabilities out.

Contract of every engine: a completion depends on the weights, the prompt, the sampling settings and its seed, never on
what else is in the batch; the log-probability of a sampled token is that of the untruncated distribution at the
sampling temperature (at temperature 1 for greedy completions).
"""

import asyncio
import contextlib
import contextvars
import queue
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from posttrain.component import Component, frozen, nearest
from posttrain.errors import UserError
from posttrain.types import Completion, FloatArray, IntArray, Message, Segment, Task

if TYPE_CHECKING:
    from posttrain.policies import Policy

Result = TypeVar("Result")
Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Sampling:
    """How a completion is drawn. The cuts apply in the order of the fields; `posttrain.engines._truncation` has the
    details, ties included.
    """

    temperature: NonNegativeFloat = 1.0
    """Divides the logits; 0 takes the likeliest token."""
    top_k: NonNegativeInt = 0
    """Keep the k likeliest tokens; 0 keeps all."""
    top_p: Share = 1.0
    """Keep the likeliest tokens that together reach this probability."""
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Drop tokens less likely than this share of the likeliest one."""
    max_tokens: PositiveInt = 128
    """Tokens after the prompt; a completion cut here has stop reason ``length``."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Strings that end a completion; the match is sampled and kept in the ids, and cut from the text."""
    stop_token_ids: tuple[NonNegativeInt, ...] = ()
    """Token ids that end a completion, beside the model's own end tokens."""


class Writer(Protocol):
    """Whatever writes text: a model of our own, or one behind an endpoint. Enough for judges and critics."""

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        """Texts of `n` completions. Raises `NoAnswer` where an endpoint cannot answer this."""
        ...


class Sampler(Writer, Protocol):
    """One role's model, ready to write and to judge likelihood. Bound to a seed; see `Rollout.collect`."""

    @property
    def context(self) -> int:
        """Longest sequence that the model takes, in tokens."""
        ...

    def prompt(self, task: Task) -> Segment:
        """A task's prompt as the model takes it: ids, text, and vectors where the task has images.

        Raises `UserError` for what the model cannot take.
        """
        ...

    def encode(self, prompt: str | Sequence[Message]) -> IntArray:
        """Token ids of a prompt: text as it stands (with the model's start token), messages by its chat template."""
        ...

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> IntArray:
        """Token ids of a completion as the model should write it after `prompt`, its end token included."""
        ...

    def decode(self, token_ids: IntArray) -> str:
        """Text of token ids, special tokens left out."""
        ...

    def encode_reply(self, prompt: str | Sequence[Message], turn: IntArray, reply: Message) -> IntArray:
        """Token ids of what somebody says after the model's turn: text as it stands, a message by the chat template.

        They go on from the ids of the `turn`, which stay as they are, end token or not.
        """
        ...

    def bind(self, *key: int | str) -> "Sampler":
        """A sampler of its own: its n-th completion and number are functions of (this one's key, key, n) alone."""
        ...

    def uniform(self) -> float:
        """A number in [0, 1) for a rollout that chooses at random; the n-th is a function of the seed alone."""
        ...

    async def sample(
        self, token_ids: IntArray, n: int, sampling: Sampling, vectors: FloatArray | None = None
    ) -> list[Completion]:
        """Write `n` completions of a prompt, whose first tokens may have vectors ([P, D], see `Segment.vectors`).

        Raises `UserError` when the prompt leaves no room in the context.
        """
        ...

    async def logp(
        self, token_ids: IntArray, *, temperature: float = 1.0, vectors: FloatArray | None = None
    ) -> FloatArray:
        """[L-1] log-probability of each token after the first, given those before it."""
        ...

    async def score(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> float:
        """What a reward head says of the whole sequence, or a value head of the last state before its end.

        Raises `UserError` for a model with another head.
        """
        ...


def sampler_of(role: str, samplers: Mapping[str, Sampler], asks: str, hint: str = "") -> Sampler:
    """The sampler of a role. Raises `UserError` for one that nobody plays: `asks` is who asks it, for the message."""
    if role not in samplers:
        raise UserError(f"{asks} the role '{role}', but no model plays it here; {nearest(role, samplers)}{hint}")
    return samplers[role]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What a server has done since it began; the difference of two is what it did in between."""

    sampled_tokens: int = 0
    prompt_tokens: int = 0
    """Tokens of prompts that were computed: once for all completions of a request."""
    scored_tokens: int = 0
    """Tokens whose log-probability was asked for."""
    completions: int = 0
    decode_steps: int = 0
    slot_steps: int = 0
    """Sum over the decode steps of the places that there were; each could have written a token."""

    @property
    def occupancy(self) -> float:
        """Share of the places that wrote a token, in [0, 1]; NaN before the first step."""
        return self.sampled_tokens / self.slot_steps if self.slot_steps else float("nan")

    def __add__(self, other: "Counters") -> "Counters":
        return Counters(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __sub__(self, other: "Counters") -> "Counters":
        return Counters(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(self)})


class Server(Protocol):
    """A model that is ready to sample, shared by everything that runs at the same time."""

    @property
    def counters(self) -> Counters:
        """What it has done until now."""
        ...

    def bind(self, *key: int | str) -> Sampler:
        """A sampler whose n-th completion is a function of (weights, prompt, settings, key, n) alone."""
        ...


class Engine(Component):
    """Makes policies sample."""

    def serve(self, policy: "Policy", seed: int) -> Server:
        """Start sampling with the weights of a policy: the live ones, so that an update is seen at once."""
        raise NotImplementedError


def wait_for(work: Coroutine[Any, Any, Result]) -> Result:
    """Run `work` to its end in an event loop of its own: in this thread, or in another one where a loop runs here
    already, as in a notebook.

    As `asyncio.run`, which on its way out writes the result of its task as text, to throw it away: a tenth of a second
    for the attempts of a step. So here the task has none.
    """
    results: list[Result] = []

    async def kept() -> None:
        results.append(await work)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(kept())
    else:
        _run_in_thread(kept())
    return results[0]


def _run_in_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run `work` in a thread with a loop of its own. An interrupt cancels it and is raised once it has ended."""
    failed: list[BaseException] = []
    begun: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = queue.SimpleQueue()
    ended = threading.Event()  # not `Thread.join`: interrupted once, it takes the thread for ended (bpo-45274)

    async def known() -> None:
        task = asyncio.ensure_future(work)
        begun.put((asyncio.get_running_loop(), task))
        await task

    def run() -> None:
        try:
            asyncio.run(known())
        except BaseException as error:
            failed.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="posttrain-wait")
    try:
        thread.start()
        while not ended.wait(0.1):  # a signal that another thread received is handled here only between two waits
            pass
    except BaseException:
        with contextlib.suppress(RuntimeError, queue.Empty):  # it has ended meanwhile, or was never begun
            loop, task = begun.get(timeout=5.0)
            loop.call_soon_threadsafe(task.cancel)
            ended.wait()
        raise
    if failed:
        raise failed[0]
