"""Streams: each token when it is sampled, whole characters, and no part of a stop string."""

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from posttrain.serving.feeds import TextStream
from posttrain.serving.server import Service
from tests.engines.scripted import END, VOCABULARY, ByteTokenizer, serve, writes
from tests.serving.test_load import PATIENCE
from tests.serving.test_server import TYPE, ChatPolicy, events, post


def streamed_by(policy: ChatPolicy, hear: Callable[[Any], None], **fields: Any) -> None:
    """Let a server stream, and call `hear` with each event when it is sent."""

    async def run() -> None:
        body = json.dumps({"prompt": "a", "max_tokens": 6, "stream": True, **fields}).encode()
        given = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive() -> Any:
            return next(given, None) or await asyncio.Event().wait()

        async def send(message: Any) -> None:
            for line in message.get("body", b"").decode().split("\n\n"):
                if line.startswith("data: {"):
                    hear(json.loads(line[6:]))

        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": TYPE, "query_string": b""}
        await Service(serve(policy), "tester").app()({**scope, "app": None}, receive, send)

    asyncio.run(run())


def test_tokens_arrive_while_the_model_goes_on() -> None:
    """The third token of both completions is computed only when the client has the first of each."""
    heard, seen, arrived = threading.Event(), [], set()

    def logits(tokens: tuple[int, ...]) -> torch.Tensor:
        if len(tokens) == 3 and not seen:
            seen.append(heard.wait(PATIENCE))
        return torch.zeros(VOCABULARY).index_fill(0, torch.arange(97, 123), 30.0)

    def hear(event: Any) -> None:
        arrived.update(choice["index"] for choice in event["choices"] if choice["text"])
        if arrived == {0, 1}:
            heard.set()

    streamed_by(ChatPolicy(logits), hear, n=2)
    assert seen == [True]


def test_an_error_in_the_middle_of_a_stream_is_an_event() -> None:
    heard, received = threading.Event(), []

    def broken(tokens: tuple[int, ...]) -> torch.Tensor:
        if len(tokens) == 1:
            return torch.zeros(VOCABULARY).index_fill(0, torch.arange(97, 123), 30.0)
        heard.wait(PATIENCE)
        return torch.full((VOCABULARY,), torch.nan)

    def hear(event: Any) -> None:
        received.append(event)
        heard.set()

    streamed_by(ChatPolicy(broken), hear)
    first, last = received
    assert first["choices"][0]["text"] and "not finite" in last["error"]["message"]


def test_a_character_is_sent_whole() -> None:
    streamed = events(post("/completions", writes({"ab": "é€\U0001f600x"}), prompt="ab", temperature=0, stream=True))
    assert [e["choices"][0]["text"] for e in streamed] == ["é", "€", "\U0001f600", "x", ""]


def test_what_may_become_a_stop_string_is_held_back() -> None:
    asked = {"prompt": "ab", "temperature": 0, "stream": True, "stop": ["gxx", "fgh"]}
    streamed = events(post("/completions", writes({"ab": "cdgxffghijk"}), **asked))
    assert [e["choices"][0]["text"] for e in streamed] == ["c", "d", "gx", "f", ""]
    assert streamed[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("content", [b"plain", "é€\U0001f600".encode() * 20, b"a\xff\xfe\xf0\x9f b" * 9, b"\xf0\x9f"])
def test_the_pieces_are_the_text(content: bytes) -> None:
    tokenizer = ByteTokenizer()
    for stops in ((), ("zz", "€x")):
        stream = TextStream(tokenizer.decode, stops)  # type: ignore[arg-type]
        pieces = [stream.push(byte) for byte in content]
        whole = tokenizer.decode(content)
        assert "".join(pieces) + stream.rest(whole) == whole


def test_the_likeliest_tokens_are_those_of_the_distribution() -> None:
    """Probabilities 1/2, 1/4, 1/4 (and next to nothing for all others), at temperature 1/2: 2/3, 1/6, 1/6."""

    def logits(tokens: tuple[int, ...]) -> torch.Tensor:
        out = torch.full((VOCABULARY,), -100.0)
        out[[98, 99, 100]] = torch.tensor([0.25, 0.5, 0.25]).log()
        return out

    asked = {"prompt": "a", "max_tokens": 1, "seed": 2}
    for temperature, half, quarter in ((1.0, 1 / 2, 1 / 4), (0.5, 2 / 3, 1 / 6), (0, 1 / 2, 1 / 4)):
        [choice] = post("/completions", ChatPolicy(logits), **asked, temperature=temperature, logprobs=2).json()[
            "choices"
        ]
        [top] = choice["logprobs"]["top_logprobs"]
        assert list(top)[:2] == ["c", "b"], "likeliest first, then by id; the sampled one is always there"
        assert [top["c"], top["b"]] == pytest.approx(torch.tensor([half, quarter]).log().tolist(), abs=1e-6)
        assert top[choice["text"]] == choice["logprobs"]["token_logprobs"][0]


def test_a_token_without_probability_has_a_number() -> None:
    def logits(tokens: tuple[int, ...]) -> torch.Tensor:
        return torch.full((VOCABULARY,), -torch.inf).index_fill(0, torch.tensor([97]), 0.0)

    [choice] = post("/completions", ChatPolicy(logits), prompt="a", max_tokens=1, logprobs=2).json()["choices"]
    assert choice["logprobs"]["top_logprobs"] == [{"a": 0.0, "\0": -9999.0}]


def test_too_many_numbers_are_refused() -> None:
    policy = ChatPolicy(lambda _: torch.zeros(VOCABULARY).index_fill(0, torch.tensor([END]), 99.0), context=4096)
    asked = {"prompt": ["a"] * 8, "n": 8, "logprobs": 20, "max_tokens": 4000}
    response = post("/completions", policy, **asked)
    assert response.status_code == 413 and "1048576" in response.json()["error"]["message"]
