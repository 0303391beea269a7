"""Completions in the form of the OpenAI protocol: whole, and token by token."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from posttrain.engines import Matcher, Sampling, TokenSampler
from posttrain.serving import wire
from posttrain.serving.bodies import event
from posttrain.serving.feeds import Taken, TextStream, Token
from posttrain.serving.fields import Refused
from posttrain.serving.tools import Call, CallReader
from posttrain.serving.wire import ChatRequest, TextRequest
from posttrain.types import Completion, IntArray

MOST_NUMBERS = 2**20
"""Log-probabilities of likeliest tokens in a response."""
UNLIKELY = -9999.0
"""Stands for minus infinity, which JSON does not have; the protocol's own value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A tokenized prompt of a request, with its sampler and number of completions."""

    sampler: TokenSampler
    token_ids: IntArray
    n: int
    sampling: Sampling
    matcher: Callable[[], Matcher] | None = None
    """Makes the matcher of each completion (`posttrain.engines.Watch.matcher`)."""
    tool_prompt: str = ""
    """What the chat template makes of the tools; empty without tools."""


@dataclass(slots=True, kw_only=True)
class Choice:
    """One completion of a request on its way to the client."""

    index: int
    prompt: Prompt
    echoed: Sequence[Token] = ()
    """The prompt's tokens, where its log-probabilities are to be given; the first one has none (NaN)."""
    stream: TextStream
    calls: CallReader | None = None
    called: int = 0
    offset: int = 0
    """Characters before the next token, for ``text_offset``."""
    begun: bool = False


def choice_of(index: int, prompt: Prompt, echoed: Sequence[Token] = ()) -> Choice:
    """A completion of which nothing is written yet."""
    return Choice(
        index=index,
        prompt=prompt,
        echoed=echoed,
        stream=TextStream(prompt.sampler.decode, prompt.sampling.stop),
        calls=CallReader(prompt.tool_prompt) if prompt.tool_prompt else None,
    )


def text_of(sampler: TokenSampler, token_id: int) -> str:
    """The text of a token by itself."""
    return sampler.decode(np.array([token_id]))


def finite(logp: float) -> float:
    """A log-probability that JSON can hold."""
    return max(logp, UNLIKELY)


@dataclass(slots=True)
class TextReplies:
    """Choices of ``/v1/completions``."""

    request: TextRequest
    identity: str
    """Of the response."""
    kind: str = "text_completion"

    @property
    def silent(self) -> bool:
        """Whether a token without text gets no event."""
        return self.request.logprobs is None and not self.request.return_token_ids

    def whole(self, choice: Choice, tokens: Sequence[Token], completion: Completion | None) -> dict[str, Any]:
        """A complete choice; without a completion the prompt alone."""
        text = "" if completion is None else completion.text
        reason = "length" if completion is None else completion.stop_reason
        echo = self._echo(choice)
        logprobs = self._logprobs(choice, [*choice.echoed, *tokens])
        made = self._choice(choice, echo + text, logprobs, reason)
        if self.request.return_token_ids:
            made["token_ids"] = [] if completion is None else completion.token_ids.tolist()
            made["prompt_token_ids"] = choice.prompt.token_ids.tolist()
        return made

    def first(self, choice: Choice) -> list[dict[str, Any]]:
        """What comes before the first token: the prompt, where it is wanted."""
        if not self.request.echo and not self.request.return_token_ids:
            return []
        made = self._choice(choice, self._echo(choice), self._logprobs(choice, choice.echoed), None)
        if self.request.return_token_ids:
            made |= {"token_ids": [], "prompt_token_ids": choice.prompt.token_ids.tolist()}
        return [made]

    def chunk(self, choice: Choice, text: str, token: Token, reason: str | None) -> list[dict[str, Any]]:
        """A token."""
        made = self._choice(choice, text, self._logprobs(choice, [token]), reason)
        if self.request.return_token_ids:
            made["token_ids"] = [token.token_id]
        return [made]

    def extra(self, prompts: Sequence[Prompt]) -> dict[str, Any]:
        """Fields of the response beside its choices."""
        return {}

    def _choice(self, choice: Choice, text: str, logprobs: Any, reason: str | None) -> dict[str, Any]:
        return {"index": choice.index, "text": text, "logprobs": logprobs, "finish_reason": reason}

    def _echo(self, choice: Choice) -> str:
        return choice.prompt.sampler.decode(choice.prompt.token_ids) if self.request.echo else ""

    def _logprobs(self, choice: Choice, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if self.request.logprobs is None:
            return None
        sampler = choice.prompt.sampler
        texts = [text_of(sampler, token.token_id) for token in tokens]
        offsets = list(accumulate(map(len, texts), initial=choice.offset))
        choice.offset = offsets[-1]
        return {
            "tokens": texts,
            "token_logprobs": [None if token.logp != token.logp else finite(token.logp) for token in tokens],
            "top_logprobs": [self._top(sampler, token) for token in tokens] if self.request.logprobs else None,
            "text_offset": offsets[:-1],
        }

    def _top(self, sampler: TokenSampler, token: Token) -> dict[str, float] | None:
        """The likeliest tokens by their texts, and the sampled one; tokens of one text by their ids."""
        if token.likeliest is None:
            return None
        found: dict[str, float] = {}
        for token_id, logp in dict([*token.likeliest, (token.token_id, token.logp)]).items():
            text = text_of(sampler, token_id)
            found[text if text not in found else f"token_id:{token_id}"] = finite(logp)
        return found


@dataclass(slots=True)
class ChatReplies:
    """Choices of ``/v1/chat/completions``."""

    request: ChatRequest
    identity: str
    """Of the response; ids of calls are made from it."""
    kind: str = field(init=False)

    def __post_init__(self) -> None:
        self.kind = "chat.completion.chunk" if self.request.stream else "chat.completion"

    @property
    def silent(self) -> bool:
        """Whether a token without text gets no event."""
        return not self.request.logprobs and not self.request.return_token_ids

    def whole(self, choice: Choice, tokens: Sequence[Token], completion: Completion | None) -> dict[str, Any]:
        """A complete choice."""
        assert completion is not None, "a reply has a token at least"
        message: dict[str, Any] = {"role": "assistant", "content": completion.text}
        reason = completion.stop_reason
        if choice.calls is not None:
            pieces = [*choice.calls.push(completion.text), *choice.calls.end()]
            calls = [self._call(choice, piece) for piece in pieces if isinstance(piece, Call)]
            if calls:
                text = "".join(piece for piece in pieces if isinstance(piece, str))
                message = {"role": "assistant", "content": text or None, "tool_calls": calls}
                reason = self._reason(reason)  # type: ignore[assignment]
        made = {
            "index": choice.index,
            "message": message,
            "logprobs": self._logprobs(choice, tokens),
            "finish_reason": reason,
        }
        if self.request.return_token_ids:
            made["token_ids"] = completion.token_ids.tolist()
        return made

    def first(self, choice: Choice) -> list[dict[str, Any]]:
        """The event that names the speaker."""
        return [self._event(choice, {"role": "assistant", "content": ""}, None, None)]

    def chunk(self, choice: Choice, text: str, token: Token, reason: str | None) -> list[dict[str, Any]]:
        """A token: its text, or the calls that it completes; several events where it completes several things."""
        pieces: list[str | Call] = [text] if text else []
        if choice.calls is not None:
            pieces = choice.calls.push(text)
            if reason is not None:
                pieces += choice.calls.end()
                reason = self._reason(reason) if choice.calls.calls else reason
        deltas = [delta for piece in pieces for delta in self._deltas(choice, piece)]
        logprobs = self._logprobs(choice, [token])
        made = [self._event(choice, delta, None, None) for delta in deltas]
        if reason is not None or (not made and not self.silent):
            made.append(self._event(choice, {}, None, reason))
        if made:
            made[0]["logprobs"] = logprobs
            if self.request.return_token_ids:
                made[0]["token_ids"] = [token.token_id]
        return made

    def extra(self, prompts: Sequence[Prompt]) -> dict[str, Any]:
        """Fields of the response beside its choices; in a stream, of the first event."""
        return {"prompt_token_ids": prompts[0].token_ids.tolist()} if self.request.return_token_ids else {}

    def _reason(self, reason: str) -> str:
        """The finish reason of a reply with calls. After a call of the only tool that it might call it is ``stop``."""
        return "tool_calls" if reason == "stop" and self.request.named is None else reason

    def _event(self, choice: Choice, delta: dict[str, Any], logprobs: Any, reason: str | None) -> dict[str, Any]:
        return {"index": choice.index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _deltas(self, choice: Choice, piece: str | Call) -> list[dict[str, Any]]:
        """Changes of the message: some text, or a call's name and then its arguments."""
        if isinstance(piece, str):
            return [{"content": piece}]
        number = choice.called
        made = self._call(choice, piece)
        named = {**made, "index": number, "function": {"name": piece.name, "arguments": ""}}
        return [
            {"tool_calls": [named]},
            {"tool_calls": [{"index": number, "function": {"arguments": piece.arguments}}]},
        ]

    def _call(self, choice: Choice, call: Call) -> dict[str, Any]:
        identity = f"call-{self.identity.partition('-')[2]}-{choice.index}-{choice.called}"
        choice.called += 1
        return {"id": identity, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}

    def _logprobs(self, choice: Choice, tokens: Sequence[Token]) -> dict[str, Any] | None:
        if not self.request.logprobs:
            return None
        sampler = choice.prompt.sampler
        content = []
        for token in tokens:
            top = [self._one(sampler, *pair) for pair in token.likeliest or ()]
            content.append({**self._one(sampler, token.token_id, token.logp), "top_logprobs": top})
        return {"content": content}

    def _one(self, sampler: TokenSampler, token_id: int, logp: float) -> dict[str, Any]:
        return {
            "token": text_of(sampler, token_id),
            "logprob": finite(logp),
            "bytes": list(sampler.token_bytes(token_id)),
        }


Replies = TextReplies | ChatReplies


def chunks(replies: Replies, choice: Choice, tokens: Sequence[Token], whole: Completion | None) -> list[dict[str, Any]]:
    """The events of new tokens of a completion; `whole` where these are its last."""
    made = [] if choice.begun else replies.first(choice)
    choice.begun = True
    for place, token in enumerate(tokens):
        last = whole is not None and place == len(tokens) - 1
        text = choice.stream.rest(whole.text) if last and whole is not None else choice.stream.push(token.token_id)
        reason = whole.stop_reason if last and whole is not None else None
        if text or reason is not None or not replies.silent:
            made += replies.chunk(choice, text, token, reason)
    return made


@dataclass(frozen=True, slots=True)
class Answer:
    """A request that is being answered."""

    wanted: wire.Request
    replies: Replies
    prompts: Sequence[Prompt]
    choices: Sequence[Sequence[Choice]]
    """By prompt."""
    envelope: dict[str, Any]

    @property
    def nothing(self) -> bool:
        """Whether no token is wanted."""
        return self.wanted.max_tokens == 0

    @property
    def extra(self) -> dict[str, Any]:
        """Fields of the response beside its choices."""
        return self.replies.extra(self.prompts)

    def usage(self, completion_tokens: int) -> dict[str, int]:
        """Counts of tokens."""
        return wire.usage(sum(len(prompt.token_ids) for prompt in self.prompts), completion_tokens)

    def events(self, taken: Sequence[Sequence[Taken]], first: dict[str, Any]) -> bytes:
        """The events of new tokens; `first` has fields of the first event of the response."""
        made = []
        for choices, several in zip(self.choices, taken, strict=True):
            for number, tokens, whole in several:
                made += chunks(self.replies, choices[number], tokens, whole)
        bodies = [
            {**self.envelope, **(first if place == 0 else {}), "choices": [one]} for place, one in enumerate(made)
        ]
        return b"".join(map(event, bodies))

    def prompts_alone(self) -> bytes:
        """The events of choices of which no token is wanted."""
        made = [self.replies.whole(choice, [], None) for several in self.choices for choice in several]
        return b"".join(event({**self.envelope, "choices": [one]}) for one in made)


async def scored(prompt: Prompt, likeliest: int) -> list[Token]:
    """The tokens of a prompt with their log-probabilities, of which the first has none."""
    temperature, ids = prompt.sampling.temperature or 1.0, prompt.token_ids
    logp = await prompt.sampler.logp(ids, temperature=temperature)
    tokens = [Token(int(ids[0]), math.nan)]
    if not likeliest:
        return tokens + [Token(int(i), float(p)) for i, p in zip(ids[1:], logp, strict=True)]
    top_ids, top_logp = await prompt.sampler.likeliest(ids, likeliest, temperature=temperature)
    for i, p, own_ids, own_logp in zip(ids[1:], logp, top_ids, top_logp, strict=True):
        pairs = list(zip(own_ids.tolist(), own_logp.tolist(), strict=True))
        tokens.append(Token(int(i), float(p), pairs))
    return tokens


def check_likeliest(wanted: wire.Request, prompts: Sequence[Prompt]) -> None:
    """Raises `Refused` for more numbers than are given at a time."""
    numbers = wanted.likeliest * sum(len(p.token_ids) + p.n * p.sampling.max_tokens for p in prompts)
    if numbers > MOST_NUMBERS:
        raise Refused(
            f"the request is for up to {numbers} log-probabilities of likeliest tokens, and at most {MOST_NUMBERS} are "
            "given; ask for fewer of them, lower max_tokens or n, or send fewer prompts at a time",
            status=413,
        )
