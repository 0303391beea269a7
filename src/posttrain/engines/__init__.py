"""Inference engines: token ids in, completions and log-probabilities out.

Contract of every engine: a completion depends on the weights, the prompt, the sampling settings and its seed, never on
what else is in the batch; the log-probability of a sampled token is that of the untruncated distribution at the
sampling temperature (at temperature 1 for greedy completions), and so is the entropy.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeFloat, NonNegativeInt

from posttrain.component import Component, frozen, nearest
from posttrain.component.automatic import Count
from posttrain.engines._loops import at_end as at_end
from posttrain.engines._loops import wait_for as wait_for
from posttrain.errors import UserError
from posttrain.types import Array, Completion, FloatArray, IntArray, Message, Segment, Task, Trajectory

if TYPE_CHECKING:
    from posttrain.policies import Policy

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Sampling:
    """How a completion is sampled. Truncations apply in the order of the fields; `posttrain.engines._truncation` has
    the details, including ties.
    """

    temperature: NonNegativeFloat = 1.0
    """Divides the logits; 0 is greedy decoding."""
    top_k: NonNegativeInt = 0
    """Keep the k likeliest tokens; 0 keeps all."""
    top_p: Share = 1.0
    """Keep the likeliest tokens that together reach this probability."""
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Drop tokens less likely than this share of the likeliest one."""
    max_tokens: Count = 128
    """Most tokens of a completion; one that is truncated here has stop reason ``length``; ``auto`` follows the model.
    """
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Strings that end a completion. The match is kept in the ids and removed from the text."""
    stop_token_ids: tuple[NonNegativeInt, ...] = ()
    """Token ids that end a completion, in addition to the model's end tokens."""


class Writer(Protocol):
    """A model that writes text: a local one, or one behind an endpoint. Enough for judges and critics."""

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        """Texts of `n` completions. Raises `NoAnswer` where an endpoint cannot answer this."""
        ...


class Sampler(Writer, Protocol):
    """One role's model, for sampling and for log-probabilities. Bound to a seed; see `Rollout.collect`."""

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
        """Token ids of a prompt: text as is (with the model's start token), messages by its chat template."""
        ...

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> IntArray:
        """Token ids of a completion as the model should write it after `prompt`, its end token included."""
        ...

    def decode(self, token_ids: IntArray) -> str:
        """Text of token ids, special tokens left out."""
        ...

    def encode_reply(self, prompt: str | Sequence[Message], turn: IntArray, reply: Message) -> IntArray:
        """Token ids of a reply to the model's turn: text as is, a message by the chat template.

        They continue the ids of the `turn`, which are not changed, whether they have an end token or not.
        """
        ...

    def bind(self, *key: int | str) -> "Sampler":
        """A sampler with an extended key: its n-th completion and number are functions of (whole key, n) alone."""
        ...

    def uniform(self) -> float:
        """A random number in [0, 1) for a rollout's own draws; the n-th is a function of the seed alone."""
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
        """The output of a reward head for the whole sequence, or of a value head for the last state before its end.

        Raises `UserError` for a model with another head.
        """
        ...

    async def scores(self, token_ids: IntArray, *, vectors: FloatArray | None = None) -> FloatArray:
        """[O] all outputs of a reward head for the whole sequence. Raises `UserError` for a model with another head."""
        ...


@runtime_checkable
class Attending(Sampler, Protocol):
    """A sampler of a model whose attention can be read: one that is loaded in this process."""

    @property
    def attends(self) -> bool:
        """Whether this model's body shows its attention."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for, which may be a part of a character."""
        ...

    async def attention(
        self, token_ids: IntArray, *, share: float = 0.5, vectors: FloatArray | None = None
    ) -> FloatArray:
        """[L] how much the last token attends to each, of sum 1: the mean over the heads of the first `share` of the
        layers. Raises `UserError` for a model that does not show it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Tokens that one completion of a request got in a step. N of them, of K likeliest ones each."""

    number: int
    """Of the completion within its request, from 0."""
    token_ids: IntArray
    """[N]"""
    logp: FloatArray
    """[N] as in `Completion.logp`."""
    likeliest_ids: IntArray | None = None
    """[N, K] the likeliest tokens, likeliest first, then by id; None where they are not wanted."""
    likeliest_logp: FloatArray | None = None
    """[N, K] log-probability of each, of the distribution of `logp`."""
    completion: Completion | None = None
    """The whole, with its last tokens."""


class Matcher(Protocol):
    """What one completion may say, place by place: constrained decoding."""

    def allowed(self) -> NDArray[np.bool_]:
        """Bool [V] tokens that may come next, at least one. Raises `UserError` where it cannot be determined."""
        ...

    def push(self, token_id: int) -> None:
        """Go on after this token, which was allowed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """What a caller wants of completions beyond their tokens. It changes no token, but for a `matcher`."""

    likeliest: int = 0
    """How many of the likeliest tokens at each place are wanted."""
    listen: Callable[[Sequence[Written]], None] | None = None
    """Called after each step with what it wrote, in the thread of the event loop that samples; it must not block."""
    matcher: Callable[[], Matcher] | None = None
    """Makes the matcher of each completion. Tokens that it does not allow are dropped before top-k, top-p and min-p;
    log-probabilities are still those of the whole distribution, unless they are `masked`."""
    masked: bool = False
    """Whether log-probabilities and entropies are those of the distribution over allowed tokens."""

    @property
    def needs_logits(self) -> bool:
        """Whether tokens are drawn one by one, with the logits at hand."""
        return self.likeliest > 0 or self.matcher is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caching:
    """Keys and values go with a completion, so that it may go on with other weights."""

    stored: Sequence[Array] | None = None
    """Those of all tokens of the prompt but the last: of the completion that the prompt ends with."""


@runtime_checkable
class Keeping(Sampler, Protocol):
    """A sampler that gives keys and values, and takes them."""

    async def go_on(
        self,
        token_ids: IntArray,
        n: int,
        sampling: Sampling,
        vectors: FloatArray | None = None,
        stored: Sequence[Array] | None = None,
    ) -> list[Completion]:
        """As `sample`, with `Completion.cache`. Where keys and values of the prompt are `stored`, one completion, and
        of its prompt only the last token is computed. Raises `UserError` where the model has other things to keep.
        """
        ...


class TokenSampler(Sampler, Protocol):
    """A sampler of text whose tokens can be watched as they are written, as servers need it."""

    def bind(self, *key: int | str) -> "TokenSampler":
        """A sampler with an extended key."""
        ...

    def encode_chat(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> IntArray:
        """Token ids of messages by the chat template, which is given the tools. Raises `UserError` where it has no
        place for them.
        """
        ...

    def tool_prompt(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """What the chat template makes of tools and nothing else, as text: it shows how the model writes calls."""
        ...

    def tokenizer_file(self) -> tuple[str, frozenset[int], int]:
        """The tokenizer as ``tokenizer.json``, the ids that end a completion, and the size of the vocabulary."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for, which may be a part of a character."""
        ...

    async def watched(self, token_ids: IntArray, n: int, sampling: Sampling, watch: Watch) -> list[Completion]:
        """As `sample`, watched."""
        ...

    async def likeliest(
        self, token_ids: IntArray, count: int, *, temperature: float = 1.0
    ) -> tuple[IntArray, FloatArray]:
        """[L-1, K] the likeliest tokens at each place after the first, and their log-probabilities, as `Written`."""
        ...


class TokenServer(Protocol):
    """A `Server` of a model of text."""

    @property
    def counters(self) -> "Counters":
        """Counts of its work so far."""
        ...

    def bind(self, *key: int | str) -> TokenSampler:
        """As `Server.bind`."""
        ...


async def next_logp(sampler: Sampler, token_ids: IntArray, choices: Sequence[int]) -> list[float]:
    """[K] log-probability of several tokens after a prompt: in one pass where a sampler can, else in one for each."""
    if isinstance(sampler, LastPlace):
        return [float(x) for x in await sampler.next_logp(token_ids, choices)]
    found = await asyncio.gather(*(sampler.logp(np.append(token_ids, choice)) for choice in choices))
    return [float(logp[-1]) for logp in found]


@runtime_checkable
class Idling(Protocol):
    """A sampler whose time goes by tokens."""

    async def idle(self, tokens: float) -> None:
        """Let the time pass that these tokens would take."""
        ...


@runtime_checkable
class Recalling(Protocol):
    """A sampler of rollouts that may go on in another process."""

    def recall(self) -> list[Any]:
        """What an environment answered under this key, to be added to."""
        ...

    def forget(self) -> None:
        """Drop all answers under this key and those that extend it, of any model."""
        ...


@runtime_checkable
class LastPlace(Protocol):
    """A sampler that gives log-probabilities of the last place alone."""

    async def next_logp(self, token_ids: IntArray, choices: Sequence[int], temperature: float = 1.0) -> FloatArray:
        """[K] log-probability of each of several tokens after a prompt."""
        ...


@runtime_checkable
class Labelling(Protocol):
    """A sampler without token ids that gives log-probabilities of labels: of an endpoint."""

    async def label_logp(self, prompt: str | Sequence[Message], labels: Sequence[str]) -> list[float]:
        """[K] log-probability that the first token after a prompt is each of several labels. Raises `NoAnswer` where
        none is among the likeliest tokens, and `UserError` for an endpoint that states no log-probabilities.
        """
        ...


def sampler_of(role: str, samplers: Mapping[str, Sampler], subject: str, hint: str = "") -> Sampler:
    """The sampler of a role. Raises `UserError` for a role without a model; `subject` begins its message."""
    if role not in samplers:
        raise UserError(f"{subject} the role '{role}', but no model has it here; {nearest(role, samplers)}{hint}")
    return samplers[role]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Cumulative counts of a server's work; the difference of two is the work in between."""

    sampled_tokens: int = 0
    prompt_tokens: int = 0
    """Tokens of prompts that were computed: once for all completions of a request."""
    reused_tokens: int = 0
    """Tokens of prompts that were there already, from sequences that had ended."""
    reusing_prompts: int = 0
    """Prompts that had such tokens."""
    dropped_prefix_tokens: int = 0
    """Room of tokens that were kept and given up for others, since the bound was reached."""
    scored_tokens: int = 0
    """Tokens whose log-probability was requested."""
    completions: int = 0
    decode_steps: int = 0
    slot_steps: int = 0
    """Slots summed over decode steps: the most tokens that could have been sampled."""

    @property
    def occupancy(self) -> float:
        """Share of the slots that sampled a token, in [0, 1]; NaN before the first step."""
        return self.sampled_tokens / self.slot_steps if self.slot_steps else float("nan")

    def __add__(self, other: "Counters") -> "Counters":
        return Counters(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    def __sub__(self, other: "Counters") -> "Counters":
        return Counters(**{f.name: getattr(self, f.name) - getattr(other, f.name) for f in fields(self)})


class Server(Protocol):
    """A loaded model that samples, shared by all concurrent callers."""

    @property
    def counters(self) -> Counters:
        """Counts of its work so far."""
        ...

    def bind(self, *key: int | str) -> Sampler:
        """A sampler whose n-th completion is a function of (weights, prompt, settings, key, n) alone."""
        ...


@runtime_checkable
class Timed(Server, Protocol):
    """A server that has numbers for the record of timing, which may differ from run to run."""

    def take_timing(self) -> Mapping[str, float]:
        """The numbers since the last call, such as bytes and seconds of changes of weights."""
        ...


@runtime_checkable
class Elsewhere(Timed, Protocol):
    """A server whose weights go to other programs."""

    def take_notes(self) -> list[str]:
        """What a person should know of what happened since the last call."""
        ...


class Engine(Component):
    """Samples from policies."""

    @property
    def samples_here(self) -> bool:
        """Whether it samples in the processes of the run."""
        return True

    def check(self, samplings: Mapping[str, Sampling]) -> None:
        """Raise `UserError` for what cannot be sampled, before anything is; `samplings` are the run's, by path."""

    def serve(self, policy: "Policy", seed: int) -> Server:
        """Serve a policy with its live weights, so that updates take effect at once."""
        raise NotImplementedError


def driver() -> Context:
    """The context of what lets the running loop go on, which may be another one than that of a task's start."""
    try:
        found = getattr(asyncio.get_running_loop(), "driver", None)
    except RuntimeError:
        found = None
    return found if isinstance(found, Context) else copy_context()


def sampled_segment(completion: Completion, role: str, *, trained: bool = True, turn: int = 0) -> Segment:
    """A completion as a segment, with its log-probabilities and the version of the weights."""
    return Segment(
        actor=role,
        token_ids=completion.token_ids,
        trained=trained,
        logp=completion.logp,
        entropy=completion.entropy,
        version=completion.version,
        turn=turn,
        text=completion.text,
        vectors=completion.vectors,
    )


def answers(
    task: Task, prompt: Segment, completions: Sequence[Completion], role: str, *, first: int = 0
) -> tuple[Trajectory, ...]:
    """Trajectories of a prompt and one completion each, numbered from `first`."""
    return tuple(
        Trajectory(task=task, segments=(prompt, sampled_segment(c, role)), stop_reason=c.stop_reason, sample=first + i)
        for i, c in enumerate(completions)
    )
