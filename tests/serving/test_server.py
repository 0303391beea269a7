"""`posttrain serve` as clients see it: the application in this process, and the command in a process of its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from posttrain.engines import Sampling
from posttrain.serving.server import Service
from tests.engines.scripted import ScriptedPolicy, bigrams, serve, writes

Client = httpx2.AsyncClient
JSON = {"Content-Type": "application/json"}
TYPE = [(b"content-type", b"application/json")]


class ChatPolicy(ScriptedPolicy):
    """Takes messages by laying their contents end to end."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        encode = self.tokenizer.encode_prompt
        self.tokenizer.encode_prompt = lambda prompt: encode(  # type: ignore[method-assign]
            prompt if isinstance(prompt, str) else "".join(m["content"] for m in prompt)
        )


def talking(work: Callable[[Client], Awaitable[Any]], policy: ScriptedPolicy | None = None, **settings: Any) -> Any:
    """Let a client talk to a server of a random policy."""
    service = Service(serve(policy or ChatPolicy(bigrams())), "tester", **settings)

    async def run() -> Any:
        transport = httpx2.ASGITransport(app=service.app())
        async with Client(transport=transport, base_url="http://test") as client:
            return await work(client)

    return asyncio.run(run())


def post(path: str, policy: ScriptedPolicy | None = None, /, **body: Any) -> httpx2.Response:
    response: httpx2.Response = talking(lambda client: client.post(f"/v1{path}", json=body), policy)
    return response


def test_a_text_completion_has_the_form_of_the_protocol() -> None:
    policy = writes({"ab": "cde", "x": "yz"})
    body = post("/completions", policy, model="tester", prompt="ab", temperature=0, logprobs=0).json()
    assert body["object"] == "text_completion" and body["model"] == "tester" and body["id"].startswith("cmpl-")
    [choice] = body["choices"]
    assert (choice["index"], choice["text"], choice["finish_reason"]) == (0, "cde", "stop")
    assert choice["logprobs"]["tokens"] == ["c", "d", "e", ""]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx([0.0] * 4, abs=1e-6)
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3]
    assert body["usage"] == {"prompt_tokens": 2, "completion_tokens": 4, "total_tokens": 6}


def test_a_chat_completion_has_the_form_of_the_protocol() -> None:
    policy = ChatPolicy(writes({"ab": "cde"}).body.script)
    parts = [{"type": "text", "text": "b"}]
    messages = [{"role": "system", "content": "a"}, {"role": "user", "content": parts}]
    body = post("/chat/completions", policy, messages=messages, temperature=0, logprobs=True).json()
    assert body["object"] == "chat.completion" and body["id"].startswith("chatcmpl-")
    [choice] = body["choices"]
    assert choice["message"] == {"role": "assistant", "content": "cde"} and choice["finish_reason"] == "stop"
    assert [t["token"] for t in choice["logprobs"]["content"]] == ["c", "d", "e", ""]


def test_limits_and_stops() -> None:
    policy = writes({"ab": "cdefghijklmnopqrstuvwxyz"})
    cut = post("/completions", policy, prompt="ab", max_tokens=3).json()["choices"][0]
    assert (cut["text"], cut["finish_reason"]) == ("cde", "length")
    assert post("/completions", policy, prompt="ab").json()["usage"]["completion_tokens"] == 16, "the protocol's limit"
    stopped = post("/completions", policy, prompt="ab", stop=["gh", "zz"]).json()["choices"][0]
    assert (stopped["text"], stopped["finish_reason"]) == ("cdef", "stop")


def test_several_prompts_as_text_and_as_ids() -> None:
    policy = writes({"ab": "c", "x": "y"})
    for prompt in (["ab", "x"], [[97, 98], [120]]):
        choices = post("/completions", policy, prompt=prompt, n=2, temperature=0).json()["choices"]
        assert [(c["index"], c["text"]) for c in choices] == [(0, "c"), (1, "c"), (2, "y"), (3, "y")]
    assert post("/completions", policy, prompt=[97, 98]).json()["choices"][0]["text"] == "c"


def texts(response: httpx2.Response) -> list[str]:
    return [choice["text"] for choice in response.json()["choices"]]


def test_a_seed_decides_and_what_else_is_asked_does_not() -> None:
    asked = {"prompt": "hello", "n": 3, "max_tokens": 12}

    async def work(client: Client) -> tuple[list[str], ...]:
        alone = await client.post("/v1/completions", json={**asked, "seed": 7})
        crowd = [client.post("/v1/completions", json={**asked, "prompt": f"p{i}", "seed": i}) for i in range(20)]
        *_, among = await asyncio.gather(*crowd, client.post("/v1/completions", json={**asked, "seed": 7}))
        other = await client.post("/v1/completions", json={**asked, "seed": 8})
        drawn = [await client.post("/v1/completions", json=asked) for _ in range(2)]
        return tuple(map(texts, (alone, among, other, *drawn)))

    alone, among, other, drawn, again = talking(work)
    assert alone == among and len(set(alone)) == 3
    assert len({tuple(t) for t in (alone, other, drawn, again)}) == 4


def test_concurrent_requests_are_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine gets the first request when the last has come: the model is too fast to wait for it."""
    from posttrain.engines._continuous import BoundSampler

    policy, sample, came = ChatPolicy(bigrams()), BoundSampler.watched, []

    async def together(*given: Any) -> Any:
        came.append(given)
        while len(came) < 8:
            await asyncio.sleep(0)
        return await sample(*given)

    monkeypatch.setattr(BoundSampler, "watched", together)

    async def work(client: Client) -> None:
        asked = {"prompt": "hello", "max_tokens": 10, "stop": [], "seed": 1}
        await asyncio.gather(*(client.post("/v1/completions", json=asked) for _ in range(8)))

    talking(work, policy)
    decoding = [lengths for lengths in policy.body.passes if set(lengths) == {1}]
    assert max(map(len, decoding)) == 8


def test_sampling_reaches_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from posttrain.engines._continuous import BoundSampler

    seen: list[Sampling] = []
    sample = BoundSampler.watched

    async def spy(self: BoundSampler, token_ids: Any, n: int, sampling: Sampling, watch: Any) -> Any:
        seen.append(sampling)
        return await sample(self, token_ids, n, sampling, watch)

    monkeypatch.setattr(BoundSampler, "watched", spy)
    post("/completions", prompt="a", temperature=0.5, top_p=0.9, top_k=7, min_p=0.05, max_tokens=3, stop="x")
    post("/chat/completions", messages=[{"role": "user", "content": "a"}], top_k=-1)
    assert seen[0] == Sampling(temperature=0.5, top_p=0.9, top_k=7, min_p=0.05, max_tokens=3, stop=("x",))
    assert seen[1] == Sampling(max_tokens=63), "a reply may fill the context"


USER = [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("path", "body", "param", "what"),
    [
        ("/completions", {"prompt": "a", "temprature": 1}, "temprature", "did you mean 'temperature'"),
        ("/completions", {"prompt": "a", "logit_bias": {"5": 1}}, "logit_bias", "not supported"),
        ("/completions", {"prompt": "a", "frequency_penalty": 0.1}, "frequency_penalty", "not supported"),
        ("/completions", {"prompt": "a", "echo": 1}, "echo", "boolean"),
        ("/completions", {"prompt": "a", "tools": [{}]}, "tools", "not supported in this request"),
        ("/completions", {"prompt": "a", "max_tokens": 0}, "max_tokens", "echo"),
        ("/completions", {"prompt": "a", "best_of": 3}, "best_of", "not supported"),
        ("/completions", {"prompt": "a", "logprobs": 21}, "logprobs", "less than or equal to 20"),
        ("/completions", {"prompt": "a", "n": 0}, "n", "greater than or equal to 1"),
        ("/completions", {"prompt": "a", "temperature": -1}, "temperature", "greater than or equal to 0"),
        ("/completions", {"prompt": "a", "stop": [""]}, "stop", "at least 1"),
        ("/completions", {"prompt": []}, "prompt", "no prompt"),
        ("/completions", {}, "prompt", "required"),
        ("/completions", {"prompt": "a" * 64}, None, "context is 64"),
        ("/completions", {"prompt": [5000]}, None, "not in the vocabulary"),
        ("/chat/completions", {"messages": []}, "messages", "at least 1"),
        ("/chat/completions", {"messages": USER, "tools": [{"type": "function"}]}, "tools", "required"),
        ("/chat/completions", {"messages": USER, "top_logprobs": 2}, "top_logprobs", "needs logprobs"),
        ("/chat/completions", {"messages": USER, "tool_choice": "required"}, "tool_choice", "a call of a tool"),
        ("/chat/completions", {"messages": [{"role": "user"}]}, "messages", "must have a content"),
        ("/chat/completions", {"messages": USER, "response_format": {"type": "xml"}}, "response_format", "json_object"),
        (
            "/chat/completions",
            {"messages": USER, "response_format": {"type": "json_schema"}},
            "response_format",
            "is given with type",
        ),
        ("/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages", "text"),
        ("/chat/completions", {"messages": USER, "max_tokens": 3, "max_completion_tokens": 4}, "max_tokens", "one"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(
    path: str, body: dict[str, Any], param: str | None, what: str
) -> None:
    response = post(path, **body)
    error = response.json()["error"]
    assert response.status_code == 400 and error["type"] == "invalid_request_error"
    assert error["param"] == param and what in error["message"]


def test_fields_that_ask_for_nothing_are_accepted() -> None:
    body = {
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "logit_bias": None,
        "tools": [],
        "user": "me",
        "echo": False,
    }
    assert post("/completions", prompt="a", **body).status_code == 200


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
def test_a_body_that_is_no_request_is_refused(content: bytes) -> None:
    response = talking(lambda client: client.post("/v1/completions", content=content, headers=JSON))
    assert response.status_code == 400 and "body" in response.json()["error"]["message"]


def test_models_health_and_what_is_not_there() -> None:
    async def work(client: Client) -> list[httpx2.Response]:
        paths = ["/v1/models", "/v1/models/tester", "/v1/models/other", "/health", "/v1/embeddings"]
        got = [await client.get(path) for path in paths]
        return [*got, await client.post("/v1/completions", json={"model": "other", "prompt": "a"})]

    models, one, other, health, unknown, wrong = talking(work)
    assert [m["id"] for m in models.json()["data"]] == ["tester"] and one.json()["id"] == "tester"
    assert health.json() == {"status": "ok", "model": "tester", "waiting": 0}
    assert (other.status_code, unknown.status_code, wrong.status_code) == (404, 404, 404)
    assert wrong.json()["error"]["code"] == "model_not_found" and "/v1/models" in unknown.json()["error"]["message"]


def test_the_key_is_asked_for_everywhere_but_health() -> None:
    async def work(client: Client) -> list[int]:
        body = {"prompt": "a", "max_tokens": 1}
        keys = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer secret"}]
        answers = [await client.post("/v1/completions", json=body, headers=headers) for headers in keys]
        return [a.status_code for a in (*answers, await client.get("/v1/models"), await client.get("/health"))]

    assert talking(work, api_key="secret") == [401, 401, 200, 401, 200]


def test_more_than_may_wait_is_put_off() -> None:
    async def work(client: Client) -> list[httpx2.Response]:
        body = {"prompt": "a", "n": 3, "max_tokens": 5}
        return list(await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(4))))

    responses = talking(work, most_waiting=6)
    assert sorted(r.status_code for r in responses) == [200, 200, 429, 429]
    late = next(r for r in responses if r.status_code == 429)
    assert late.headers["retry-after"] == "1" and late.json()["error"]["code"] == "rate_limit_exceeded"


def events(response: httpx2.Response) -> list[Any]:
    assert response.headers["content-type"].startswith("text/event-stream")
    *lines, last = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert last == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_stream_has_the_same() -> None:
    asked = {"prompt": "hello", "n": 3, "max_tokens": 12, "seed": 7, "logprobs": 2, "return_token_ids": True}
    whole = post("/completions", **asked).json()
    streamed = events(post("/completions", **asked, stream=True, stream_options={"include_usage": True}))
    assert streamed[-1]["usage"] == whole["usage"] and streamed[-1]["choices"] == []
    assert {len(e["choices"]) for e in streamed[:-1]} == {1}
    for choice in whole["choices"]:
        own = [c for e in streamed for c in e["choices"] if c["index"] == choice["index"]]
        assert "".join(c["text"] for c in own) == choice["text"]
        assert [c["finish_reason"] for c in own] == [None] * (len(own) - 1) + [choice["finish_reason"]]
        assert [i for c in own for i in c["token_ids"]] == choice["token_ids"]
        assert [len(c["token_ids"]) for c in own] == [0] + [1] * len(choice["token_ids"]), "an event for each token"
        assert own[0]["prompt_token_ids"] == choice["prompt_token_ids"] == list(b"hello")
        for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            assert [x for c in own for x in c["logprobs"][name]] == choice["logprobs"][name]


def test_a_stream_of_a_chat_has_the_same() -> None:
    asked = {"messages": USER, "max_tokens": 5, "seed": 3, "logprobs": True, "top_logprobs": 2}
    [choice] = post("/chat/completions", **asked, return_token_ids=True).json()["choices"]
    first, *streamed = events(post("/chat/completions", **asked, return_token_ids=True, stream=True))
    assert first["object"] == "chat.completion.chunk" and first["prompt_token_ids"] == list(b"hi")
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    own = [c for e in streamed for c in e["choices"]]
    assert "".join(c["delta"].get("content", "") for c in own) == choice["message"]["content"]
    assert [t for c in own if c["logprobs"] for t in c["logprobs"]["content"]] == choice["logprobs"]["content"]
    assert [i for c in own for i in c.get("token_ids", [])] == choice["token_ids"]
    assert own[-1]["finish_reason"] == choice["finish_reason"] and own[-1]["delta"] == {}


@pytest.mark.parametrize("prompt", ["a" * 64, [5000], [2**63], "\ud800"])
def test_a_stream_that_cannot_begin_has_a_status(prompt: Any) -> None:
    content = json.dumps({"prompt": prompt, "stream": True}).encode()
    response = talking(lambda client: client.post("/v1/completions", content=content, headers=JSON))
    assert response.status_code == 400 and response.json()["error"]["message"]


def test_a_client_that_goes_away_gives_its_places_back() -> None:
    policy = ChatPolicy(lambda _: __import__("torch").zeros(258), context=4096)
    service = Service(serve(policy), "tester")
    body = json.dumps({"prompt": "a", "max_tokens": 4000, "stop": ["\0\0\0\0"]}).encode()
    sent: list[Any] = []

    async def receive() -> AsyncIterator[Any]:
        yield {"type": "http.request", "body": body, "more_body": False}
        await asyncio.sleep(0.05)
        while True:  # as servers do, to all who ask
            yield {"type": "http.disconnect"}

    async def run() -> int:
        coming = receive()
        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": TYPE, "query_string": b""}

        async def send(message: Any) -> None:
            sent.append(message)

        await service.app()({**scope, "app": None}, lambda: anext(coming), send)
        written = len(policy.body.passes)
        await asyncio.sleep(0.02)
        assert len(policy.body.passes) <= written + 1, "nothing is written for nobody"
        return service.waiting

    assert asyncio.run(run()) == 0


@pytest.fixture
def command(tmp_path: Path) -> Any:
    """The command, started; what it announced; and its end by a signal."""
    arguments = ["serve", "pebble", "--port", "0", "--json", "--name", "judge", "--api-key-env", "SERVE_KEY"]
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; from posttrain.cli import main; sys.exit(main())", *arguments],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SERVE_KEY": "secret"},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = process.stdout.readline()
            assert line, "it ended before it listened"
            text += line
        yield process, json.loads(text)
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_the_real_client_talks_to_the_real_server(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    openai = pytest.importorskip("openai")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    process, announced = command
    with openai.OpenAI(base_url=announced["url"], api_key="secret", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["judge"]
        asked = {"model": "judge", "messages": [{"role": "user", "content": "Spell: horse"}], "temperature": 0}
        reply = client.chat.completions.create(**asked, logprobs=True)
        assert reply.choices[0].message.content == "h o r s e" and reply.usage.completion_tokens == 10
        assert reply.choices[0].logprobs.content[0].token == "h"
        streamed = client.chat.completions.create(**asked, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == "h o r s e"
        text = client.completions.create(model="judge", prompt="12+5=", temperature=0, max_tokens=4)
        assert text.choices[0].text == "17"
        with pytest.raises(openai.BadRequestError, match="logit_bias is not supported"):
            client.completions.create(model="judge", prompt="1", logit_bias={"5": 1})
        with pytest.raises(openai.NotFoundError, match="no model 'other'"):
            client.completions.create(model="other", prompt="1")
    stranger = openai.OpenAI(base_url=announced["url"], api_key="guess", max_retries=0)
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.models.list()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 0


@pytest.mark.slow
def test_what_was_begun_is_finished_after_a_signal(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    process, announced = command
    base, headers = announced["url"].removesuffix("/v1"), {"Authorization": "Bearer secret"}

    async def run() -> httpx2.Response:
        async with Client(base_url=base, headers=headers, timeout=120) as client:
            body = {"prompt": "1", "n": 16, "max_tokens": 400, "temperature": 3, "min_p": 0}
            asked = asyncio.ensure_future(client.post("/v1/completions", json=body))
            deadline = time.monotonic() + 60
            while not (await client.get("/health")).json()["waiting"]:
                assert time.monotonic() < deadline and not asked.done()
            process.send_signal(signal.SIGTERM)
            return await asked

    response = asyncio.run(run())
    assert response.status_code == 200 and len(response.json()["choices"]) == 16
    assert process.wait(timeout=60) == 0
