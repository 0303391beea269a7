"""The OpenAI protocol on the wire: requests, responses and errors.

Unsupported fields are refused by name, never ignored. Fields without effect (labels, and values that turn a feature
off) are accepted, since clients send them.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, Strict, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.engines import Sampling
from posttrain.serving.fields import (
    LARGEST,
    MOST_TOOLS,
    ChatMessage,
    Flag,
    Positive,
    Real,
    Refused,
    ResponseFormat,
    Text,
    Tool,
    ToolChoice,
    Whole,
)
from posttrain.types import Completion

LABELS = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key", "service_tier"})
"""Fields about the client and billing; they do not affect a completion."""
OFF: Mapping[str, Sequence[Any]] = {
    "best_of": (1,),
    "echo": (False,),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "top_logprobs": (0,),
    "suffix": ("",),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "functions": ([],),
    "modalities": (["text"],),
    "store": (False,),
}
"""Features that are not there, or not in both kinds of request, with the values that turn them off."""
DEFAULT_MAX_TOKENS = 16
"""The protocol's default limit of a text completion; a reply in a chat may fill the context."""

OFF_IN_MESSAGES = frozenset({"annotations", "tool_calls"})
"""Fields of a message that clients send back as they got them; an empty list requests nothing."""
MOST_VALUES = 2**18
"""Values in the lists of a request: with more of them its parsing would stop everything else for long."""
MOST_FIELDS = 100
MOST_LIKELIEST = 20
"""Likeliest tokens at a place."""
_adapters: dict[type[Any], TypeAdapter[Any]] = {}
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _read_prompts(given: Any) -> tuple[str | list[int], ...]:
    """Prompts of text or ids, from any of the four forms that the protocol has."""
    several = given if isinstance(given, list) and (not given or not isinstance(given[0], int)) else [given]
    if not several:
        raise PydanticCustomError("prompt", "it holds no prompt")
    if all(isinstance(prompt, str) for prompt in several):
        return tuple(several)
    for prompt in several:
        if not isinstance(prompt, list) or set(map(type, prompt)) != {int}:
            raise PydanticCustomError("prompt", "it must be text, a list of token ids, or a list of either")
        if min(prompt) < 0 or max(prompt) > LARGEST:
            raise PydanticCustomError("prompt", "a token id is not in the vocabulary")
    return tuple(several)


Prompts = Annotated[tuple[str | list[int], ...], PlainValidator(_read_prompts)]


@frozen
class StreamOptions:
    """Options of a stream."""

    include_usage: Flag = False
    """Whether a last event has the counts of tokens."""


@frozen
class Request:
    """Fields of both kinds of request."""

    model: str | None = None
    """None is the model that is served."""
    n: Annotated[int, Strict(), Field(ge=1, le=128)] = 1
    max_tokens: Positive | None = None
    temperature: Annotated[Real, Field(ge=0.0, le=10.0)] = 1.0
    top_p: Annotated[Real, Field(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[Whole, Field(ge=-1)] = 0
    """An extension of the protocol that other servers have; 0 and -1 keep every token."""
    min_p: Annotated[Real, Field(ge=0.0, lt=1.0)] = 0.0
    """An extension of the protocol that other servers have."""
    stop: Text | Annotated[list[Text], Field(max_length=16)] = ()  # type: ignore[assignment]
    seed: Annotated[int, Strict(), Field(ge=-(2**63), le=2**64 - 1)] | None = None
    """With a seed the same request has the same answer, whatever the load; None draws a new seed."""
    stream: Flag = False
    stream_options: StreamOptions = StreamOptions()
    response_format: ResponseFormat = ResponseFormat(type="text")
    return_token_ids: Flag = False
    """An extension of the protocol that vLLM has: the ids of prompt and completion."""

    @property
    def likeliest(self) -> int:
        """How many likeliest tokens are wanted at each place."""
        raise NotImplementedError

    @property
    def wants_logprobs(self) -> bool:
        """Whether log-probabilities are wanted."""
        raise NotImplementedError

    def sampling(self, default_max_tokens: int) -> Sampling:
        """Settings of the engine; `default_max_tokens` is the limit of a request without one."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=max(self.top_k, 0),
            min_p=self.min_p,
            max_tokens=self.max_tokens or default_max_tokens,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
        )


@frozen
class TextRequest(Request):
    """``POST /v1/completions``."""

    prompt: Prompts
    max_tokens: Annotated[Whole, Field(ge=0)] | None = None
    """0 is for the log-probabilities of a prompt, with `echo`."""
    logprobs: Annotated[Whole, Field(ge=0, le=MOST_LIKELIEST)] | None = None
    """How many likeliest tokens are given beside the log-probability of each."""
    echo: Flag = False
    """Whether the prompt is given before the completion."""

    @property
    def likeliest(self) -> int:
        """How many likeliest tokens are wanted at each place."""
        return self.logprobs or 0

    @property
    def wants_logprobs(self) -> bool:
        """Whether log-probabilities are wanted."""
        return self.logprobs is not None


@frozen
class ChatRequest(Request):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(fail_fast=True, min_length=1, max_length=10_000)]
    max_completion_tokens: Positive | None = None
    """The newer name of `max_tokens`."""
    logprobs: Flag = False
    top_logprobs: Annotated[Whole, Field(ge=0, le=MOST_LIKELIEST)] = 0
    tools: Annotated[tuple[Tool, ...], Field(fail_fast=True, max_length=MOST_TOOLS)] = ()
    tool_choice: Literal["auto", "none", "required"] | ToolChoice = "auto"
    """``auto`` leaves it to the model whether it calls; the others but ``none`` force a call."""
    parallel_tool_calls: Flag = True

    @property
    def likeliest(self) -> int:
        """How many likeliest tokens are wanted at each place."""
        return self.top_logprobs

    @property
    def wants_logprobs(self) -> bool:
        """Whether log-probabilities are wanted."""
        return self.logprobs

    @property
    def shown_tools(self) -> list[dict[str, Any]]:
        """The tools that the model is shown."""
        return [tool.plain for tool in self.tools] if self.tool_choice != "none" else []

    @property
    def forced(self) -> tuple[Tool, ...]:
        """The tools of which the reply must call one; none where it need not call."""
        if isinstance(self.tool_choice, str):
            return self.tools if self.tool_choice == "required" else ()
        return tuple(tool for tool in self.tools if tool.function.name == self.named)

    @property
    def named(self) -> str | None:
        """The only tool that the reply must call."""
        return None if isinstance(self.tool_choice, str) else self.tool_choice.function.name


def read_text_request(body: bytes) -> TextRequest:
    """Raises `Refused`."""
    request: TextRequest = _read(body, TextRequest)
    if request.max_tokens == 0 and not request.echo:
        raise Refused("max_tokens: it is 0, which requests nothing without echo", param="max_tokens")
    return request


def read_chat_request(body: bytes) -> ChatRequest:
    """Raises `Refused`."""
    request: ChatRequest = _read(body, ChatRequest)
    if request.max_tokens and request.max_completion_tokens:
        raise Refused("max_tokens and max_completion_tokens are two names of one limit; give one", param="max_tokens")
    if request.top_logprobs and not request.logprobs:
        raise Refused("top_logprobs needs logprobs: true", param="top_logprobs")
    if request.tool_choice not in ("auto", "none") and not request.forced:
        given = ", ".join(tool.function.name for tool in request.tools[:8])
        raise Refused(
            f"tool_choice wants a call of {f'{request.named!r:.80}' if request.named else 'a tool'}, and the tools of "
            f"this request are: {given or 'none'}",
            param="tool_choice",
        )
    if request.shown_tools and not request.parallel_tool_calls and not request.forced:
        raise Refused(
            "parallel_tool_calls: false needs a tool_choice that forces the call ('required', or a tool); otherwise a "
            "reply has as many calls as the model writes",
            param="parallel_tool_calls",
        )
    if request.shown_tools and request.response_format.wanted is not None:
        raise Refused("tools and a response_format exclude one another here; give one", param="response_format")
    for message in request.messages:
        if message.content is None and not message.tool_calls:
            raise Refused("messages.content: a message without tool_calls must have a content", param="messages")
    return request


def _read(body: bytes, kind: type[Any]) -> Any:
    """A request of a kind, from JSON."""
    if body.count(b",") > MOST_VALUES:
        raise Refused(f"the request has more than {MOST_VALUES} values; send fewer prompts at a time", status=413)
    try:
        text = body.decode()
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is not JSON: {error}") from None
    if SURROGATE.search(text) and not _has_whole_characters(given):
        raise Refused("the body has half of a character (a lone surrogate)")
    if not isinstance(given, dict):
        raise Refused(f"the body is {type(given).__name__}, not an object")
    if len(given) > MOST_FIELDS:
        raise Refused(f"the request has {len(given)} fields; more than it can have")
    fields = {}
    for name, value in given.items():
        if value is None or name in LABELS:
            continue
        if name not in OFF or name in kind.__dataclass_fields__:
            fields[name] = value
        elif not any(value == off and isinstance(value, bool) == isinstance(off, bool) for off in OFF[name]):
            raise Refused(f"{name} is not supported in this request; leave it out", param=name)
    if isinstance(fields.get("messages"), list):
        fields["messages"] = [_without_nulls(message) for message in fields["messages"]]
    try:
        return _adapter(kind).validate_python(fields)
    except ValidationError as error:
        # Of a union, the member that validates deepest has the most specific error.
        first = max(error.errors(include_url=False), key=lambda item: len(item["loc"]))
    context = first.get("ctx", {})
    names = [str(part) for part in first["loc"]] + ([context["key"]] if "key" in context else [])
    got = "" if first["type"] in ("missing", "unknown_field", "prompt") else f", got {_short(first['input'])}"
    raise Refused(f"{'.'.join(names) or 'request'}: {first['msg']}{got}", param=names[0] if names else None)


def _has_whole_characters(given: Any) -> bool:
    """Whether every text in it can be encoded."""
    try:
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    """The validator of a kind of request, made once."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _without_nulls(message: Any) -> Any:
    """A message without the fields that hold nothing, as clients send back a reply that they got."""
    if not isinstance(message, dict):
        return message
    kept = {name: value for name, value in message.items() if value is not None}
    kept = {name: value for name, value in kept.items() if not (name in OFF_IN_MESSAGES and value == [])}
    if isinstance(kept.get("content"), list):
        kept["content"] = [_without_nulls(part) for part in kept["content"]]
    return kept


def _short(value: Any) -> str:
    """A value in an error: by its kind where its text could be long."""
    if isinstance(value, dict | list):
        return f"{type(value).__name__} of {len(value)}"
    return repr(value[:60] if isinstance(value, str) else value)[:60]


def finish_reason(completion: Completion) -> str:
    """The protocol's finish reason of a completion."""
    return "length" if completion.stop_reason == "length" else "stop"


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """The protocol's counts of tokens."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def name_of(role: str, request: Mapping[str, Any]) -> str:
    """A hash of a request, short enough for a name."""
    text = json.dumps([role, request], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
