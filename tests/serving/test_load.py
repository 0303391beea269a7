"""The server while requests ask too much of it: what is refused, what is cancelled, and who is answered meanwhile."""

import asyncio
import json
import threading
import time
import weakref
from typing import Any

import httpx2
import pytest
import torch

from posttrain.engines._continuous import ContinuousServer
from posttrain.serving import memory
from posttrain.serving.server import LONG, Service
from tests.engines.scripted import bigrams, serve, writes
from tests.serving.test_server import JSON, ChatPolicy, Client, talking

CONTEXT = 64
LIMIT = 4000
"""Tokens that `endless` would write."""
PATIENCE = 20.0
"""Seconds after which what blocks gives up; only a server that does not answer meanwhile waits for so long."""


def body(**fields: Any) -> bytes:
    return json.dumps({"prompt": "a", "max_tokens": 5, **fields}).encode()


async def post(client: Client, **fields: Any) -> httpx2.Response:
    path = "/v1/chat/completions" if "messages" in fields else "/v1/completions"
    content = json.dumps(fields) if "messages" in fields else body(**fields)
    return await client.post(path, content=content, headers=JSON)


def endless() -> ChatPolicy:
    """A policy that writes until its limit, 4,000 tokens later."""
    return ChatPolicy(lambda _: torch.zeros(258).index_fill(0, torch.arange(97, 123), 9.0), context=4096)


def test_others_are_answered_while_a_prompt_is_encoded() -> None:
    policy = ChatPolicy(bigrams())
    encode, entered, answered = policy.tokenizer.encode_prompt, threading.Event(), threading.Event()
    seen: list[bool] = []

    def slow(prompt: Any) -> Any:
        entered.set()
        seen.append(answered.wait(PATIENCE))
        return encode(prompt)

    policy.tokenizer.encode_prompt = slow  # type: ignore[method-assign]

    async def work(client: Client) -> None:
        asked = asyncio.ensure_future(post(client))
        await asyncio.to_thread(entered.wait, PATIENCE)
        assert (await client.get("/health")).json()["waiting"] == 1, "it has its place before it is encoded"
        answered.set()
        assert (await asked).status_code == 200

    talking(work, policy)
    assert seen == [True]


def test_others_are_answered_while_the_model_computes() -> None:
    entered, answered = threading.Event(), threading.Event()
    script, seen = bigrams(), []

    def slow(tokens: tuple[int, ...]) -> torch.Tensor:
        if not entered.is_set():
            entered.set()
            seen.append(answered.wait(PATIENCE))
        return script(tokens)

    async def work(client: Client) -> None:
        asked = asyncio.ensure_future(post(client))
        await asyncio.to_thread(entered.wait, PATIENCE)
        assert (await client.get("/health")).status_code == 200
        answered.set()
        assert (await asked).status_code == 200

    talking(work, ChatPolicy(slow))
    assert seen == [True]


def test_a_long_text_is_refused_after_its_first_piece() -> None:
    policy = ChatPolicy(bigrams())
    encode, lengths = policy.tokenizer.encode_prompt, []

    def measured(prompt: Any) -> Any:
        lengths.append(len(prompt if isinstance(prompt, str) else prompt[0]["content"]))
        return encode(prompt)

    policy.tokenizer.encode_prompt = measured  # type: ignore[method-assign]
    text = "a" * 2_000_000
    for fields in ({"prompt": text}, {"messages": [{"role": "user", "content": text}]}):
        response = talking(lambda client, f=fields: post(client, **f), policy)
        assert response.status_code == 400 and response.json()["error"]["code"] == "context_length_exceeded"
        assert "context is 64 tokens" in response.json()["error"]["message"]
    assert max(lengths) == LONG * CONTEXT


def test_a_long_text_of_few_tokens_is_taken() -> None:
    """Two thousand spaces are one token here, so that they fit."""
    policy = ChatPolicy(bigrams())
    encode = policy.tokenizer.encode_prompt
    policy.tokenizer.encode_prompt = lambda prompt: encode(prompt.replace(" ", "") or "_")  # type: ignore[method-assign]
    assert talking(lambda client: post(client, prompt=" " * 2000 + "a"), policy).status_code == 200


@pytest.mark.parametrize("stream", [False, True])
def test_more_than_there_are_places_for_is_refused_unread(stream: bool) -> None:
    policy = ChatPolicy(bigrams())
    policy.tokenizer.encode_prompt = lambda _: pytest.fail("it was encoded")  # type: ignore[method-assign]
    response = talking(lambda client: post(client, prompt=["a"] * 5000, n=128, stream=stream), policy)
    assert response.status_code == 413
    assert response.json()["error"]["message"].startswith("the request is for 640000 completions")


def test_places_are_counted_for_streams_too() -> None:
    async def work(client: Client) -> tuple[list[int], int]:
        asked = [post(client, n=3, stream=True, seed=i) for i in range(4)]
        statuses = sorted([response.status_code for response in await asyncio.gather(*asked)])
        return statuses, (await client.get("/health")).json()["waiting"]

    assert talking(work, most_waiting=6) == ([200, 200, 429, 429], 0)


def test_requests_are_counted_so_that_others_can_connect() -> None:
    async def work(client: Client) -> list[int]:
        asked = [post(client, stream=True, seed=i) for i in range(4)]
        statuses = sorted([response.status_code for response in await asyncio.gather(*asked)])
        return [*statuses, (await post(client)).status_code]

    assert talking(work, most_requests=3) == [200, 200, 200, 429, 200]


def test_memory_is_given_back_once_requests_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they were answered or refused; once for all of them, in the thread that processed them."""
    given: list[str] = []
    over = threading.Event()

    def noted() -> None:
        given.append(threading.current_thread().name)
        over.set()

    monkeypatch.setattr(memory, "give_back", noted)
    monkeypatch.setattr(memory, "QUIET", 0.001)

    async def work(client: Client) -> bool:
        await asyncio.gather(post(client, prompt="a" * 5000), post(client), post(client, stream=True))
        return await asyncio.to_thread(over.wait, PATIENCE)

    assert talking(work)
    assert set(given) == {"posttrain-requests"}


def test_giving_memory_back_collects_garbage() -> None:
    watched = type("Watched", (), {})()
    watched.own, seen = watched, weakref.ref(watched)
    del watched
    memory.give_back()
    assert seen() is None


def test_what_fails_gives_its_places_back() -> None:
    async def work(client: Client) -> tuple[list[int], int]:
        wrong: list[dict[str, Any]] = [
            {"prompt": "a" * CONTEXT},
            {"prompt": ["a", [5000]]},
            {"prompt": [5000]},
            {"prompt": [5000], "stream": True},
            {"prompt": "a" * 5000, "stream": True},
        ]
        statuses = [(await post(client, **fields)).status_code for fields in wrong]
        return statuses, (await client.get("/health")).json()["waiting"]

    assert talking(work) == ([400] * 5, 0)


async def idle(service: Service, server: ContinuousServer) -> bool:
    """Whether nothing is decoded once what was cancelled has ended, which it does long before its limit."""
    deadline = time.monotonic() + PATIENCE
    await service._engine.started()
    while server._scheduler is not None and server._scheduler.busy and time.monotonic() < deadline:
        await asyncio.sleep(0.001)
    busy = server._scheduler is not None and server._scheduler.busy
    return not busy and server.counters.sampled_tokens < LIMIT


def test_siblings_of_a_failed_prompt_are_cancelled() -> None:
    policy = endless()
    server = serve(policy)
    service = Service(server, "tester")

    async def run() -> None:
        async with Client(transport=httpx2.ASGITransport(app=service.app()), base_url="http://test") as client:
            for stream in (False, True):
                response = await post(client, prompt=[[97], [98], [5000]], max_tokens=LIMIT, stream=stream)
                assert response.status_code == 400 and "not in the vocabulary" in response.text
                assert await idle(service, server) and service.waiting == 0

    asyncio.run(run())


@pytest.mark.parametrize("after", [0, 1])
def test_a_stream_nobody_reads_is_cancelled(after: int) -> None:
    """The client goes away before the stream begins, or after its first message."""
    policy = endless()
    server = serve(policy)
    service = Service(server, "tester")
    sent: list[Any] = []
    gone = asyncio.Event()

    async def run() -> None:
        messages = iter(
            [{"type": "http.request", "body": body(max_tokens=LIMIT, n=4, stream=True), "more_body": False}]
        )

        async def receive() -> Any:
            for message in messages:
                if not after:
                    gone.set()
                return message
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            gone.set()

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers, "query_string": b""}
        await service.app()({**scope, "app": None}, receive, send)
        assert await idle(service, server) and service.waiting == 0

    asyncio.run(run())


def test_a_fault_of_the_server_is_logged_once_and_shows_nothing(caplog: pytest.LogCaptureFixture) -> None:
    policy = writes({"ab": "cde"})

    def broken(_: Any) -> Any:
        raise ZeroDivisionError("in /home/somebody/secret")

    policy.tokenizer.decode = broken  # type: ignore[method-assign]

    async def work(client: Client) -> list[httpx2.Response]:
        return [await post(client, prompt="ab") for _ in range(3)]

    for response in talking(work, policy):
        assert response.status_code == 500 and "secret" not in response.text and "ZeroDivisionError" in response.text
    assert len(caplog.records) == 1


class Panic(BaseException):
    """As a tokenizer written in Rust raises it."""


def test_a_panic_of_the_tokenizer_is_a_refusal() -> None:
    policy = ChatPolicy(bigrams())

    def panicking(_: Any) -> Any:
        raise Panic

    policy.tokenizer.encode_prompt = panicking  # type: ignore[method-assign]
    response = talking(post, policy)
    assert response.status_code == 400 and "cannot encode" in response.text
