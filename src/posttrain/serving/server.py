"""Serves a model over the OpenAI protocol; concurrent requests are decoded in one batch.

Log-probabilities are those of the engine: of the token that was sampled, at the sampling temperature, before top-k,
top-p and min-p cut the distribution. A request with a seed has the same answer every time. A stream sends each
completion in one piece when it is complete. A client that goes away gives its places back.
"""

import asyncio
import hmac
import itertools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from posttrain.engines import Sampler, Sampling, Server
from posttrain.errors import UserError
from posttrain.serving import wire
from posttrain.serving.wire import Refused
from posttrain.types import Completion, IntArray

T = TypeVar("T")
LARGEST_BODY = 16 * 2**20
RETRY_AFTER = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One prompt of a request, ready to be completed."""

    sampler: Sampler
    token_ids: IntArray
    n: int
    sampling: Sampling


class Service:
    """The routes, and what they share."""

    def __init__(self, server: Server, name: str, *, api_key: str = "", most_waiting: int = 1024) -> None:
        """`name` is what clients call the model; more completions at a time than `most_waiting` are put off (429)."""
        self.name = name
        self._server = server
        self._key = api_key.encode()
        self._most_waiting = most_waiting
        self._waiting = 0
        self._count = itertools.count()
        self._began = int(time.time())

    def app(self) -> Starlette:
        """As ASGI servers take it."""
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/v1/models", self._answered(self._models)),
                Route("/v1/models/{name:path}", self._answered(self._model)),
                Route("/v1/completions", self._answered(self._complete), methods=["POST"]),
                Route("/v1/chat/completions", self._answered(self._chat), methods=["POST"]),
            ],
            exception_handlers={404: _unknown, 405: _unknown, 500: _broken},
        )

    def _answered(
        self, route: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """A route behind the key, with refusals in the protocol's form."""

        async def answer(request: Request) -> Response:
            try:
                self._check_key(request)
                return await route(request)
            except Refused as refused:
                headers = {"Retry-After": RETRY_AFTER} if refused.status == 429 else None
                return JSONResponse(refused.body, refused.status, headers=headers)
            except UserError as error:
                return JSONResponse(Refused(str(error)).body, 400)
            except ClientDisconnect:
                return Response(status_code=499)  # nobody reads it

        return answer

    def _check_key(self, request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ").encode()
        if self._key and not hmac.compare_digest(given, self._key):
            raise Refused("this server needs its API key, as a bearer token", status=401, code="invalid_api_key")

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "model": self.name, "waiting": self._waiting})

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._described()]})

    async def _model(self, request: Request) -> Response:
        self._check_name(request.path_params["name"])
        return JSONResponse(self._described())

    def _described(self) -> dict[str, Any]:
        return {"id": self.name, "object": "model", "created": self._began, "owned_by": "posttrain"}

    def _check_name(self, name: str | None) -> None:
        if name is not None and name != self.name:
            raise Refused(
                f"there is no model '{name}' here; this server has '{self.name}'",
                status=404,
                param="model",
                code="model_not_found",
            )

    async def _complete(self, request: Request) -> Response:
        """``POST /v1/completions``."""
        wanted = wire.read_text_request(await _body(request))
        self._check_name(wanted.model)
        sampling = wanted.sampling(wire.DEFAULT_MAX_TOKENS)
        asked = []
        for prompt in wanted.prompts:
            sampler = self._sampler(wanted.seed)
            token_ids = sampler.encode(prompt) if isinstance(prompt, str) else _array(prompt)
            asked.append(Asked(sampler=sampler, token_ids=token_ids, n=wanted.n, sampling=sampling))

        def choice(index: int, completion: Completion, sampler: Sampler) -> dict[str, Any]:
            logprobs = None if wanted.logprobs is None else wire.text_logprobs(completion, _texts(sampler, completion))
            reason = wire.finish_reason(completion)
            return {"index": index, "text": completion.text, "logprobs": logprobs, "finish_reason": reason}

        envelope = self._envelope("cmpl", "text_completion")
        if wanted.stream:
            return self._stream(asked, envelope, choice, wanted.stream_options.include_usage)
        return await self._whole(request, asked, envelope, choice)

    async def _chat(self, request: Request) -> Response:
        """``POST /v1/chat/completions``."""
        wanted = wire.read_chat_request(await _body(request))
        self._check_name(wanted.model)
        sampler = self._sampler(wanted.seed)
        token_ids = sampler.encode([message.plain for message in wanted.messages])
        room = wanted.max_completion_tokens or max(sampler.context - len(token_ids), 1)
        asked = [Asked(sampler=sampler, token_ids=token_ids, n=wanted.n, sampling=wanted.sampling(room))]
        part = "delta" if wanted.stream else "message"

        def choice(index: int, completion: Completion, sampler: Sampler) -> dict[str, Any]:
            logprobs = wire.chat_logprobs(completion, _texts(sampler, completion)) if wanted.logprobs else None
            said = {"role": "assistant", "content": completion.text}
            return {"index": index, part: said, "logprobs": logprobs, "finish_reason": wire.finish_reason(completion)}

        envelope = self._envelope("chatcmpl", "chat.completion.chunk" if wanted.stream else "chat.completion")
        if wanted.stream:
            return self._stream(asked, envelope, choice, wanted.stream_options.include_usage)
        return await self._whole(request, asked, envelope, choice)

    def _sampler(self, seed: int | None) -> Sampler:
        """The same one for the same seed, and a new one without."""
        return self._server.bind("drawn", next(self._count)) if seed is None else self._server.bind("seed", seed)

    def _envelope(self, prefix: str, kind: str) -> dict[str, Any]:
        identity = f"{prefix}-{self._began}-{next(self._count)}"
        return {"id": identity, "object": kind, "created": int(time.time()), "model": self.name}

    async def _whole(
        self, request: Request, asked: Sequence[Asked], envelope: dict[str, Any], choice: Callable[..., dict[str, Any]]
    ) -> Response:
        """Every completion in one answer."""
        self._check_room(asked)
        samples = asyncio.gather(*(self._sample(a, a.n) for a in asked))
        written = await _unless_gone(request, samples)
        pairs = [(a, completion) for a, completions in zip(asked, written, strict=True) for completion in completions]
        choices = [choice(i, completion, a.sampler) for i, (a, completion) in enumerate(pairs)]
        return JSONResponse({**envelope, "choices": choices, "usage": _counted(asked, [c for _, c in pairs])})

    def _stream(
        self, asked: Sequence[Asked], envelope: dict[str, Any], choice: Callable[..., dict[str, Any]], counted: bool
    ) -> Response:
        """Each completion as an event, in the order in which they end."""
        self._check_room(asked)

        alone = [(a, self._sample(a, 1)) for a in asked for _ in range(a.n)]

        async def one(index: int) -> tuple[int, Asked, Completion]:
            a, sample = alone[index]
            (completion,) = await sample
            return index, a, completion

        async def events() -> AsyncIterator[str]:
            tasks = [asyncio.ensure_future(one(index)) for index in range(len(alone))]
            written = []
            try:
                for task in asyncio.as_completed(tasks):
                    index, a, completion = await task
                    written.append(completion)
                    yield _event({**envelope, "choices": [choice(index, completion, a.sampler)]})
                if counted:
                    yield _event({**envelope, "choices": [], "usage": _counted(asked, written)})
            except UserError as error:
                yield _event(Refused(str(error)).body)
            except Exception as error:
                yield _event(Refused(f"{type(error).__name__}: {error}", status=500).body)
            finally:
                for pending in tasks:
                    pending.cancel()
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream", headers={"Cache-Control": "no-cache"})

    def _check_room(self, asked: Sequence[Asked]) -> None:
        """Put off what would make the line too long."""
        if self._waiting and self._waiting + sum(a.n for a in asked) > self._most_waiting:
            raise Refused(
                f"{self._waiting} completions are waiting, and at most {self._most_waiting} may; ask again later",
                status=429,
                code="rate_limit_exceeded",
            )

    def _sample(self, asked: Asked, n: int) -> "asyncio.Task[list[Completion]]":
        """Begin to write; counted from now until it ends."""
        task = asyncio.ensure_future(asked.sampler.sample(asked.token_ids, n, asked.sampling))
        self._waiting += n

        def ended(_: object) -> None:
            self._waiting -= n

        task.add_done_callback(ended)
        return task


async def _body(request: Request) -> bytes:
    """The body, unless it is too large."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            raise Refused(f"the body is larger than {LARGEST_BODY} bytes", status=413)
    return bytes(body)


async def _unless_gone(request: Request, work: "asyncio.Future[T]") -> T:
    """What comes of the work; it is given up when the client goes away."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    watch = asyncio.ensure_future(gone())
    try:
        await asyncio.wait((work, watch), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            raise ClientDisconnect
        return work.result()
    finally:
        watch.cancel()
        work.cancel()


def _array(token_ids: Sequence[int]) -> IntArray:
    import numpy as np

    return np.array(token_ids, np.int64)


def _texts(sampler: Sampler, completion: Completion) -> list[str]:
    """The text of each token by itself."""
    return [sampler.decode(completion.token_ids[i : i + 1]) for i in range(len(completion.token_ids))]


def _counted(asked: Sequence[Asked], written: Sequence[Completion]) -> dict[str, int]:
    return wire.usage(sum(len(a.token_ids) for a in asked), sum(len(c.token_ids) for c in written))


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


async def _unknown(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    what = f"there is no {request.method} {request.url.path} here; see /v1/models, /v1/completions, "
    return JSONResponse(Refused(f"{what}/v1/chat/completions and /health", status=status).body, status)


async def _broken(request: Request, error: Exception) -> Response:
    return JSONResponse(Refused(f"{type(error).__name__}: {error}", status=500).body, 500)
