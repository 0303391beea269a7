"""The OpenAI protocol on the wire: requests, responses and errors.

What is not supported is refused with the field's name, never passed over. Fields that ask for nothing (a label, or the
value by which a feature is off) are accepted, since clients send them.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, StringConstraints, TypeAdapter, ValidationError

from posttrain.component import frozen
from posttrain.engines import Sampling
from posttrain.types import Completion, Message

LABELS = frozenset({"user", "metadata", "safety_identifier", "prompt_cache_key", "service_tier"})
"""Fields that say who asks or how to bill; they ask nothing of a model."""
OFF: Mapping[str, Sequence[Any]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "store": (False,),
    "top_logprobs": (0,),
}
"""Features that we do not have, with the values that do not ask for them."""
DEFAULT_MAX_TOKENS = 16
"""Of a text completion that names no limit, as the protocol has it; a reply in a chat may fill the context."""

Text = Annotated[str, StringConstraints(min_length=1)]
TokenIds = Annotated[list[NonNegativeInt], Field(min_length=1)]


class Refused(Exception):
    """A request that is answered with an error."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code

    @property
    def body(self) -> dict[str, Any]:
        """As the protocol writes errors."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


@frozen
class StreamOptions:
    """What a stream holds beside the text."""

    include_usage: bool = False
    """Whether a last event counts the tokens."""


@frozen
class Part:
    """A piece of a message's content."""

    type: Literal["text"]
    text: str


@frozen
class ChatMessage:
    """A message as clients send it."""

    role: Text
    content: str | list[Part]

    @property
    def plain(self) -> Message:
        """With its content as one text."""
        parts = [self.content] if isinstance(self.content, str) else [part.text for part in self.content]
        return Message(role=self.role, content="".join(parts))


@frozen
class Request:
    """What both kinds of request have in common."""

    model: str | None = None
    """None takes the one that is served."""
    n: Annotated[int, Field(ge=1, le=128)] = 1
    max_tokens: PositiveInt | None = None
    temperature: Annotated[float, Field(ge=0.0, le=10.0)] = 1.0
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, Field(ge=-1)] = 0
    """Beyond the protocol, as other servers have it; 0 and -1 keep every token."""
    min_p: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Beyond the protocol, as other servers have it."""
    stop: Text | Annotated[list[Text], Field(max_length=16)] = ()  # type: ignore[assignment]
    seed: int | None = None
    """With one, the same request has the same answer, whatever else is being asked; None draws anew each time."""
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()

    def sampling(self, otherwise: int) -> Sampling:
        """As our engine takes it; `otherwise` is the limit where none is asked for."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=max(self.top_k, 0),
            min_p=self.min_p,
            max_tokens=self.max_tokens or otherwise,
            stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
        )


@frozen
class TextRequest(Request):
    """``POST /v1/completions``."""

    prompt: str | list[str] | TokenIds | list[TokenIds]
    logprobs: Annotated[int, Field(ge=0)] | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """Each prompt."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [[i for i in self.prompt if isinstance(i, int)]]
        return [p for p in self.prompt if not isinstance(p, int)]


@frozen
class ChatRequest(Request):
    """``POST /v1/chat/completions``."""

    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    max_completion_tokens: PositiveInt | None = None
    """The newer name of `max_tokens`."""
    logprobs: bool = False


def read_text_request(body: bytes) -> TextRequest:
    """Raises `Refused`."""
    request: TextRequest = _read(body, TextRequest)
    if request.logprobs:
        raise Refused(
            "only the log-probability of the token that was sampled is known: logprobs=0 gives it, others cannot be "
            "had",
            param="logprobs",
        )
    if not request.prompts:
        raise Refused("prompt holds no prompt", param="prompt")
    return request


def read_chat_request(body: bytes) -> ChatRequest:
    """Raises `Refused`."""
    request: ChatRequest = _read(body, ChatRequest)
    if request.max_tokens and request.max_completion_tokens:
        raise Refused("max_tokens and max_completion_tokens are two names of one limit; give one", param="max_tokens")
    return request


def _read(body: bytes, kind: type[Any]) -> Any:
    """A request of a kind, from JSON."""
    try:
        given = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Refused(f"the body is {type(given).__name__}, not an object")
    asked = {}
    for name, value in given.items():
        if value is None or name in LABELS:
            continue
        if name not in OFF:
            asked[name] = value
        elif not any(value == off and isinstance(value, bool) == isinstance(off, bool) for off in OFF[name]):
            raise Refused(f"{name} is not supported here; leave it out", param=name)
    try:
        return TypeAdapter(kind).validate_python(asked)
    except ValidationError as error:
        # Of a value that may have several forms, the form that fits furthest says best what is wrong.
        first = max(error.errors(include_url=False), key=lambda item: len(item["loc"]))
    context = first.get("ctx", {})
    names = [str(part) for part in first["loc"]] + ([context["key"]] if "key" in context else [])
    got = "" if first["type"] in ("missing", "unknown_field") else f", got {first['input']!r:.60}"
    raise Refused(f"{'.'.join(names) or 'request'}: {first['msg']}{got}", param=names[0] if names else None)


def finish_reason(completion: Completion) -> str:
    """Why a completion ended, in the protocol's words."""
    return "length" if completion.stop_reason == "length" else "stop"


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, int]:
    """Counts of tokens."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
    }


def text_logprobs(completion: Completion, texts: Sequence[str]) -> dict[str, Any]:
    """Log-probabilities of a text completion; `texts` has the text of each of its tokens."""
    offsets = [sum(map(len, texts[:i])) for i in range(len(texts))]
    logps = [float(p) for p in completion.logp]
    return {"tokens": list(texts), "token_logprobs": logps, "top_logprobs": None, "text_offset": offsets}


def chat_logprobs(completion: Completion, texts: Sequence[str]) -> dict[str, Any]:
    """Log-probabilities of a reply in a chat."""
    return {
        "content": [
            {"token": text, "logprob": float(logp), "bytes": list(text.encode()), "top_logprobs": []}
            for text, logp in zip(texts, completion.logp, strict=True)
        ]
    }


def name_of(role: str, request: Mapping[str, Any]) -> str:
    """A short name that no two requests share."""
    text = json.dumps([role, request], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
