"""Completions under a JSON schema, and the log-probabilities of a prompt, with real tokenizers."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
import torch

from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies._byte_tokenizer import VOCABULARY_SIZE
from posttrain.policies.loading import load_policy
from posttrain.serving.structured import MOST_VALUES
from tests.engines.scripted import bigrams, serve
from tests.serving.speaking import speaks, talk

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"enum": ["é", "cat", "ca"]},
        "age": {"type": "integer", "minimum": 7, "maximum": 42},
        "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def form(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("llguidance")
    return speaks(bigrams(vocabulary_size=VOCABULARY_SIZE), tmp_path_factory.mktemp("model"))


def holds(value: Any) -> bool:
    """Whether a value is one of the schema."""
    return (
        list(value) == ["name", "age", "tags"]
        and value["name"] in ("é", "cat", "ca")
        and isinstance(value["age"], int)
        and 7 <= value["age"] <= 42
        and 1 <= len(value["tags"]) <= 3
        and all(isinstance(tag, bool) for tag in value["tags"])
    )


@pytest.mark.slow
def test_random_models_follow_the_schema(policy: Any) -> None:
    async def work(client: Any) -> Any:
        asked = {"prompt": "x", "max_tokens": 200, "response_format": form(SCHEMA), "logprobs": 3}
        drawn = await client.post("/completions", json={**asked, "n": 16, "seed": 1})
        others = [{"temperature": 0}, {"top_k": 2, "seed": 1}, {"min_p": 0.5, "seed": 1}, {"top_p": 0.1, "seed": 1}]
        more = [await client.post("/completions", json={**asked, **other}) for other in others]
        return [choice for answer in (drawn, *more) for choice in answer.json()["choices"]]

    choices = talk(policy, work)
    values = [json.loads(choice["text"]) for choice in choices]
    assert all(map(holds, values)) and {choice["finish_reason"] for choice in choices} == {"stop"}
    assert {value["name"] for value in values} == {"é", "cat", "ca"}, "all that is allowed can be drawn"
    given = choices[0]["logprobs"]
    log_softmax = policy.body.script((ord("x"),)).double().log_softmax(0)
    assert given["token_logprobs"][0] == pytest.approx(float(log_softmax[ord("{")]), abs=1e-6), "of all tokens"
    assert max(given["top_logprobs"][0].values()) == pytest.approx(float(log_softmax.max()), abs=1e-6)


def test_a_completion_alone_is_the_same_in_company(policy: Any) -> None:
    async def work(client: Any) -> Any:
        asked = {"prompt": "x", "max_tokens": 60, "seed": 5, "logprobs": 4, "response_format": form(SCHEMA)}
        alone = await client.post("/completions", json=asked)
        crowd = [{"prompt": f"p{i}", "seed": i, "max_tokens": 30, "top_k": i} for i in range(6)]
        crowd += [{**asked, "prompt": f"q{i}"} for i in range(3)]
        *_, among = await asyncio.gather(*(client.post("/completions", json=one) for one in [*crowd, asked]))
        return alone.json()["choices"], among.json()["choices"]

    alone, among = talk(policy, work)
    assert alone == among


def test_any_object(policy: Any) -> None:
    async def work(client: Any) -> Any:
        asked = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 6, "seed": 1}
        return (
            await client.post("/chat/completions", json={**asked, "response_format": {"type": "json_object"}})
        ).json()

    assert talk(policy, work)["choices"][0]["message"]["content"].startswith("{")


def nested(levels: int) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": nested(levels - 1)}} if levels else {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ({"type": "nonsense"}, "Invalid type"),
        ({"not": {"type": "string"}}, "not"),
        ({"$ref": "http://example.com/x"}, "nothing is fetched"),
        ({"$ref": "#/nowhere"}, "/nowhere"),
        ({"type": "string", "pattern": "(" * 200}, "regex"),
        (nested(30), "deep"),
        ({"enum": list(range(MOST_VALUES))}, "values"),
        ({"const": "x" * 40_000}, "bytes"),
        ({"allOf": [{"anyOf": [{"required": [f"p{i}_{j}"]} for j in range(6)]} for i in range(6)]}, "too large"),
    ],
)
def test_a_schema_that_cannot_be_held_is_refused(policy: Any, schema: Any, what: str) -> None:
    async def work(client: Any) -> Any:
        return await client.post("/completions", json={"prompt": "x", "response_format": form(schema)})

    answer = talk(policy, work)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "response_format"
    assert what in answer.json()["error"]["message"]


def test_a_schema_that_becomes_too_costly_ends_its_own_request_only(policy: Any, monkeypatch: Any) -> None:
    from posttrain.engines import _schemas

    async def work(client: Any) -> Any:
        costly = {"prompt": "x", "response_format": form({"type": "string", "pattern": "[^a]*" * 100})}
        plain = {"prompt": "y", "seed": 1, "max_tokens": 30}
        return await asyncio.gather(*(client.post("/completions", json=body) for body in (costly, plain)))

    monkeypatch.setitem(_schemas.LIMITS, "step_lexer_fuel", 2_000)
    costly, plain = talk(policy, work)
    assert plain.status_code == 200 and len(plain.json()["choices"][0]["text"]) > 5
    assert costly.status_code == 400 and "cannot be followed" in costly.json()["error"]["message"]


@pytest.fixture(scope="module")
def pebble() -> Iterator[Any]:
    yield load_policy("policy", Model(source="pebble"), {}, torch.device("cpu"))


def test_a_prompt_is_echoed_with_its_log_probabilities(pebble: Any) -> None:
    async def work(client: Any) -> Any:
        written = {"prompt": "12+5=", "temperature": 0, "max_tokens": 2, "logprobs": 3, "echo": True}
        read = {"prompt": "12+5=17", "max_tokens": 0, "logprobs": 3, "echo": True}
        streamed = await client.post("/completions", json={**written, "stream": True})
        plain = await client.post("/completions", json={"prompt": "12+5=", "temperature": 0, "echo": True})
        return (
            *[(await client.post("/completions", json=body)).json() for body in (written, read)],
            streamed,
            plain.json(),
        )

    written, read, streamed, plain = talk(pebble, work)
    one, other = (answer["choices"][0] for answer in (written, read))
    assert one["text"] == other["text"] == plain["choices"][0]["text"] == "12+5=17"
    assert read["usage"]["completion_tokens"] == 0 and other["finish_reason"] == "length"
    assert one["logprobs"]["token_logprobs"][0] is None and one["logprobs"]["top_logprobs"][0] is None
    for name in ("tokens", "text_offset"):
        assert one["logprobs"][name] == other["logprobs"][name]
    for place in range(1, 7):
        both = [choice["logprobs"] for choice in (one, other)]
        values = [given["token_logprobs"][place] for given in both]
        assert values[0] == pytest.approx(values[1], abs=1e-4)
        tops = [given["top_logprobs"][place] for given in both]
        assert tops[0] == pytest.approx(tops[1], abs=1e-4) and 3 <= len(tops[0]) <= 4
        assert tops[0][one["logprobs"]["tokens"][place]] == values[0]
    lines = [json.loads(line[6:]) for line in streamed.text.split("\n\n") if line.startswith("data: {")]
    assert [line["choices"][0]["text"] for line in lines] == ["12+5=", "1", "7"]
    sampler = Native().serve(pebble, 0)
    assert isinstance(sampler, type(serve(pebble)))
    expected = asyncio.run(sampler.bind("x").logp(np.frombuffer(b"12+5=", np.uint8).astype(np.int64)))
    assert one["logprobs"]["token_logprobs"][1:5] == pytest.approx(expected.tolist(), abs=1e-6)


def test_the_bytes_of_tokens(pebble: Any) -> None:
    tokenizer = pebble.tokenizer
    assert b"".join(tokenizer.token_bytes(int(i)) for i in tokenizer.encode("é €")) == "é €".encode()


def test_the_server_states_what_it_lacks(policy: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)

    async def work(client: httpx2.AsyncClient) -> Any:
        return await client.post("/completions", json={"prompt": "x", "response_format": {"type": "json_object"}})

    answer = talk(policy, work)
    assert answer.status_code == 400 and "posttrain[structured]" in answer.json()["error"]["message"]
