"""Serves a model over the OpenAI protocol; concurrent requests are decoded in one batch.

Log-probabilities are those of the engine: of the token that was sampled, at the sampling temperature, before top-k,
top-p and min-p cut the distribution. A request with a seed has the same answer every time. A stream has an event
for each token. The completions of a client that disconnects are cancelled.
"""

import asyncio
import itertools
import json
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from posttrain.engines import Matcher, TokenSampler, TokenServer, Watch
from posttrain.errors import PosttrainError, UserError
from posttrain.serving import wire
from posttrain.serving.access import Access
from posttrain.serving.bodies import Pieces, Reservation, each, event, unless_gone
from posttrain.serving.feeds import Feed, Token
from posttrain.serving.fields import Refused
from posttrain.serving.memory import Tidier
from posttrain.serving.replies import (
    Answer,
    ChatReplies,
    Prompt,
    Replies,
    TextReplies,
    check_likeliest,
    choice_of,
    scored,
)
from posttrain.serving.structured import Structured
from posttrain.serving.threads import EngineThread, Worker
from posttrain.serving.tools import is_marked
from posttrain.types import Completion, IntArray, Message

RETRY_AFTER = "1"
LONG = 8
"""Characters for each token of the context, beyond which a text is processed piece by piece."""
MARGIN = 16
"""Tokens by which the encoding of a piece may be longer than that of the whole at its end."""

log = logging.getLogger("posttrain.serving")


class Service:
    """The routes and their shared state."""

    def __init__(
        self,
        server: TokenServer,
        name: str,
        *,
        api_key: str = "",
        most_waiting: int = 1024,
        most_requests: int = 1024,
        hosts: Collection[str] = (),
        private: Collection[str] = (),
    ) -> None:
        """`name` is the model's name for clients; more than `most_waiting` concurrent completions are refused,
        and more than `most_requests` requests for them: their connections are not all that the process can have.

        `hosts` are its allowed host names (none: all), `private` what errors must not contain, such as paths.
        """
        self.name = name
        self.waiting = 0
        self._server = server
        self._most_waiting, self._most_requests = most_waiting, most_requests
        self.requests = 0
        self._private = sorted(filter(None, private), key=len, reverse=True)
        self._context = server.bind("context").context
        self._access = Access(key=api_key, hosts=hosts, context=self._context)
        self._engine = EngineThread()
        self._worker = Worker("posttrain-requests")
        self.tidier = Tidier(self._worker, self._engine)
        self._writer = Worker("posttrain-replies")
        self._structured = Structured()
        self._count = itertools.count()
        self._began = int(time.time())
        self._failed: set[type[BaseException]] = set()

    def routes(self) -> list[tuple[str, Callable[[Request], Awaitable[Response]], str]]:
        """Path, function and method of each."""
        return [
            ("/health", self._health, "GET"),
            ("/v1/models", self._models, "GET"),
            ("/v1/models/{name:path}", self._model, "GET"),
            ("/v1/completions", self._complete, "POST"),
            ("/v1/chat/completions", self._chat, "POST"),
        ]

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[Route(path, self._guarded(route), methods=[method]) for path, route, method in self.routes()],
            exception_handlers={404: _unknown, 405: _unknown},
        )

    def _guarded(
        self, route: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """A route that checks the sender, and returns errors in the protocol's form."""

        async def answer(request: Request) -> Response:
            entered = False
            try:
                self._access.check_sender(request)
                if request.url.path != "/health":
                    self._access.check_key(request)
                if request.method == "POST":
                    self._access.check_type(request)
                    self._check_room()
                    self.requests += 1
                    entered = True
                response = await route(request)
                entered = entered and not isinstance(response, Pieces)  # it leaves when it has ended
                return response
            except ClientDisconnect:
                return Response(status_code=499)  # the client has disconnected
            except Exception as error:
                refused = self._refusal(error)
                headers = {"Retry-After": RETRY_AFTER} if refused.status == 429 else None
                return JSONResponse(refused.body, refused.status, headers=headers)
            finally:
                self.requests -= entered
                if request.method == "POST":
                    self.tidier.soon()

        return answer

    def _check_room(self) -> None:
        """Raises `Refused` (429) where no more requests are answered at a time."""
        if self.requests >= self._most_requests:
            raise Refused(
                f"{self.requests} requests are being answered; retry later", status=429, code="rate_limit_exceeded"
            )

    def _refusal(self, error: Exception) -> Refused:
        """The message of an error to a client: without paths of this machine, and without details of a fault."""
        if isinstance(error, Refused):
            return error
        if isinstance(error, PosttrainError):
            return Refused(self._public(str(error)), status=400 if isinstance(error, UserError) else 500)
        if type(error) not in self._failed:
            self._failed.add(type(error))
            log.error(
                "a request failed; later ones that fail with %s are not logged", type(error).__name__, exc_info=error
            )
        return Refused(f"the server failed at this request ({type(error).__name__}); its log has more", status=500)

    def _public(self, text: str) -> str:
        """A text without the paths of this machine."""
        for path in self._private:
            text = text.replace(path, self.name)
        return re.sub(r"(?<![\w:/.])(?:[A-Za-z]:)?(?:[/\\][\w.@+~-]+){2,}", "...", text)

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "model": self.name, "waiting": self.waiting})

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
        async with self._access.body(request) as body:
            wanted = await self._worker.call(lambda: wire.read_text_request(body))
        self._check_name(wanted.model)
        sampling = wanted.sampling(wire.DEFAULT_MAX_TOKENS)

        def tokenized() -> list[Prompt]:
            prompts = []
            matcher = self._matcher(wanted)
            for prompt in wanted.prompt:
                sampler = self._sampler(wanted.seed)
                token_ids = self._tokenize(sampler, prompt)
                prompts.append(
                    Prompt(sampler=sampler, token_ids=token_ids, n=wanted.n, sampling=sampling, matcher=matcher)
                )
            return prompts

        return await self._answer(
            request, wanted, len(wanted.prompt), tokenized, TextReplies(wanted, self._identity("cmpl"))
        )

    async def _chat(self, request: Request) -> Response:
        """``POST /v1/chat/completions``."""
        async with self._access.body(request) as body:
            wanted = await self._worker.call(lambda: wire.read_chat_request(body))
        self._check_name(wanted.model)

        def tokenized() -> list[Prompt]:
            sampler, tools = self._sampler(wanted.seed), wanted.shown_tools
            token_ids = self._tokenize(sampler, [message.plain for message in wanted.messages], tools)
            shown = sampler.tool_prompt(tools) if tools else ""
            return [
                Prompt(
                    sampler=sampler,
                    token_ids=token_ids,
                    n=wanted.n,
                    sampling=wanted.sampling(wanted.max_completion_tokens or self._context - len(token_ids)),
                    matcher=self._caller(wanted, shown) if wanted.forced else self._matcher(wanted),
                    tool_prompt=shown,
                )
            ]

        return await self._answer(request, wanted, 1, tokenized, ChatReplies(wanted, self._identity("chatcmpl")))

    def _matcher(self, wanted: wire.Request) -> Callable[[], Matcher] | None:
        """What makes the matchers of a request with a response_format."""
        schema = wanted.response_format.wanted
        return None if schema is None else self._structured.compile(schema, self._server.bind("schema"))

    def _caller(self, wanted: wire.ChatRequest, shown: str) -> Callable[[], Matcher]:
        """What makes the matchers of a request that forces a call: in the shape that the template shows."""
        several = wanted.named is None and wanted.parallel_tool_calls
        sampler, marked = self._server.bind("schema"), is_marked(shown)
        return self._structured.compile_calls(wanted.forced, sampler, marked=marked, several=several)

    async def _answer(
        self,
        request: Request,
        wanted: wire.Request,
        prompts: int,
        tokenized: Callable[[], list[Prompt]],
        replies: Replies,
    ) -> Response:
        """Reserve places, tokenize, sample, and answer with all completions or with a stream of them."""
        reservation = self._reserve(prompts * wanted.n)
        try:
            ready = await unless_gone(request, asyncio.ensure_future(self._worker.call(tokenized)))
            check_likeliest(wanted, ready)
            echoed = await unless_gone(request, asyncio.ensure_future(self._echoed(wanted, ready)))
            choices = [
                [choice_of(place * wanted.n + i, prompt, tokens) for i in range(prompt.n)]
                for place, (prompt, tokens) in enumerate(zip(ready, echoed, strict=True))
            ]
            answer = Answer(wanted, replies, ready, choices, self._envelope(replies))
            if wanted.stream:
                return await self._stream(answer, reservation)
            return await self._whole(request, answer, reservation)
        except BaseException:
            reservation.close()
            raise

    async def _echoed(self, wanted: wire.Request, prompts: Sequence[Prompt]) -> list[list[Token]]:
        """The tokens of each prompt with their log-probabilities; none where they are not wanted."""
        if not isinstance(wanted, wire.TextRequest) or not wanted.echo or wanted.logprobs is None:
            return [[] for _ in prompts]
        return [await self._engine.submit(scored(prompt, wanted.likeliest)) for prompt in prompts]

    def _reserve(self, count: int) -> Reservation:
        """Places for completions. Raises `Refused` (413) for more than there can be, (429) for more than are free."""
        if count > self._most_waiting:
            raise Refused(
                f"the request is for {count} completions (prompts times n), and the limit is {self._most_waiting}; "
                "send fewer prompts at a time",
                status=413,
            )
        if self.waiting + count > self._most_waiting:
            raise Refused(
                f"{self.waiting} completions are waiting, and the limit is {self._most_waiting}; retry later",
                status=429,
                code="rate_limit_exceeded",
            )
        return Reservation(self, count)

    def _tokenize(
        self,
        sampler: TokenSampler,
        prompt: str | Sequence[int] | Sequence[Message],
        tools: Sequence[dict[str, Any]] = (),
    ) -> IntArray:
        """Token ids of a prompt that leaves room in the context. Raises `Refused` for one that does not.

        A long text is not encoded whole: its first pieces already have too many tokens, or it is nearly all spaces.
        """
        if isinstance(prompt, str) or (prompt and not isinstance(prompt[0], int)):
            text = prompt if isinstance(prompt, str) else "".join(str(m["content"]) for m in prompt)  # type: ignore[index]
            size = LONG * self._context
            while size < len(text):
                self._check_length(len(self._encode(sampler, text[:size])) - MARGIN, "at least ")
                size *= 2
            token_ids = self._encode(sampler, prompt, tools)  # type: ignore[arg-type]
        else:
            token_ids = np.array(prompt, np.int64)
        self._check_length(len(token_ids))
        return token_ids

    def _encode(
        self, sampler: TokenSampler, prompt: str | Sequence[Message], tools: Sequence[dict[str, Any]] = ()
    ) -> IntArray:
        try:
            return sampler.encode_chat(prompt, tools) if tools else sampler.encode(prompt)  # type: ignore[arg-type]
        except UserError:
            raise
        except BaseException as error:  # the tokenizer's panics are no Exceptions
            raise Refused(f"the tokenizer of this model cannot encode the prompt ({type(error).__name__})") from error

    def _check_length(self, tokens: int, bound: str = "") -> None:
        if tokens > self._context - 1:
            raise Refused(
                f"the prompt has {bound}{tokens} tokens; the model's context is {self._context} tokens, of which one "
                "must be left to write in",
                code="context_length_exceeded",
            )

    def _sampler(self, seed: int | None) -> TokenSampler:
        """The same sampler for the same seed; a new one without a seed."""
        return self._server.bind("drawn", next(self._count)) if seed is None else self._server.bind("seed", seed)

    def _identity(self, prefix: str) -> str:
        """Another one for each response."""
        return f"{prefix}-{self._began}-{next(self._count)}"

    def _envelope(self, replies: Replies) -> dict[str, Any]:
        return {
            "id": replies.identity,
            "object": replies.kind,
            "created": int(time.time()),
            "model": self.name,
        }

    async def _whole(self, request: Request, answer: Answer, reservation: Reservation) -> Response:
        """All completions in one response."""
        feeds = [Feed(prompt.n, answer.wanted.likeliest) for prompt in answer.prompts]
        samples = [self._sample(*pair, answer.wanted, reservation) for pair in zip(answer.prompts, feeds, strict=True)]
        written = await unless_gone(request, asyncio.gather(*samples))
        count = sum(len(completion.token_ids) for completions in written for completion in completions)
        start = json.dumps({**answer.envelope, **answer.extra, "usage": answer.usage(count)})[:-1] + ', "choices": ['
        pieces = [start.encode()]
        for place, (feed, completions) in enumerate(zip(feeds, written, strict=True)):
            tokens = {number: own for number, own, _ in feed.take()}
            for number, choice in enumerate(answer.choices[place]):  # one by one: others are answered in between
                one = completions[number] if completions else None
                made = partial(answer.replies.whole, choice, tokens.get(number, []), one)
                piece = await self._writer.call(lambda made=made: json.dumps(made()))  # type: ignore[misc]
                pieces.append((", " if len(pieces) > 1 else "").encode() + piece.encode())
        pieces.append(b"]}")
        return Pieces(each(pieces), reservation, "application/json", length=sum(map(len, pieces)))

    async def _stream(self, answer: Answer, reservation: Reservation) -> Response:
        """Each token as an event, in the order in which they are sampled. What is refused at once has a status."""
        news = asyncio.Event()
        feeds = [Feed(prompt.n, answer.wanted.likeliest, news) for prompt in answer.prompts]
        samples = [self._sample(*pair, answer.wanted, reservation) for pair in zip(answer.prompts, feeds, strict=True)]
        for sample in samples:
            sample.add_done_callback(lambda _: news.set())
        await self._begun(samples, feeds, news)
        for sample in samples:
            if sample.done():
                sample.result()

        async def events() -> AsyncIterator[bytes]:
            count, first = 0, answer.extra
            try:
                while True:
                    over = all(sample.done() for sample in samples)
                    taken = [feed.take() for feed in feeds]
                    count += sum(len(tokens) for several in taken for _, tokens, _ in several)
                    if any(taken):
                        body = await self._writer.call(partial(answer.events, taken, first))
                        first = {} if body else first
                        yield body
                    failed = [sample for sample in samples if sample.done() and sample.exception() is not None]
                    if over or failed:
                        for sample in failed or samples:
                            sample.result()
                        break
                    await news.wait()
                    news.clear()
                if answer.nothing:
                    yield await self._writer.call(answer.prompts_alone)
                if answer.wanted.stream_options.include_usage:
                    yield event({**answer.envelope, "choices": [], "usage": answer.usage(count)})
            except Exception as error:
                yield event(self._refusal(error).body)
            finally:
                for sample in samples:
                    sample.cancel()
            yield b"data: [DONE]\n\n"

        return Pieces(events(), reservation, "text/event-stream")

    async def _begun(
        self, samples: Sequence["asyncio.Future[Any]"], feeds: Sequence[Feed], news: asyncio.Event
    ) -> None:
        """Return when what the engine refuses at once is known: its thread has begun all of it, or all has tokens.

        To wait for the thread alone would hold back tokens that are there: it may take steps before it answers.
        """
        started = asyncio.ensure_future(self._engine.started())
        started.add_done_callback(lambda _: news.set())
        while not started.done():
            if all(sample.done() or feed.begun for sample, feed in zip(samples, feeds, strict=True)):
                started.cancel()
                return
            await news.wait()
            news.clear()

    def _sample(
        self, prompt: Prompt, feed: Feed, wanted: wire.Request, reservation: Reservation
    ) -> "asyncio.Future[list[Completion]]":
        """Starts the completions of a prompt, which are cancelled with the reservation."""
        listened = wanted.stream or wanted.likeliest or wanted.wants_logprobs
        watch = Watch(likeliest=wanted.likeliest, listen=feed.put if listened else None, matcher=prompt.matcher)
        n = 0 if wanted.max_tokens == 0 else prompt.n
        future = self._engine.submit(prompt.sampler.watched(prompt.token_ids, n, prompt.sampling, watch))
        reservation.futures.append(future)
        future.add_done_callback(lambda _: reservation.ended(n))
        return future


async def _unknown(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    what = f"there is no {request.method:.20} {request.url.path:.100} here; see /v1/models, /v1/completions, "
    return JSONResponse(Refused(f"{what}/v1/chat/completions and /health", status=status).body, status)
