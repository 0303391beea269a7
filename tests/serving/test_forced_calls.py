"""Replies that must call a tool (`tool_choice`), of models that draw at random."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.policies._byte_tokenizer import VOCABULARY_SIZE
from posttrain.serving.tools import OPEN, read_calls
from tests.engines.scripted import bigrams
from tests.serving.speaking import BARE, HERMES, says, speaks, talk
from tests.serving.test_server import events

USER = {"role": "user", "content": "1+2?"}
ADD = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/digit"}, "b": {"$ref": "#/$defs/digit"}},
    "required": ["a", "b"],
    "additionalProperties": False,
    "$defs": {"digit": {"type": "integer", "minimum": 0, "maximum": 9}},
}


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    function = {"name": name} | ({} if parameters is None else {"parameters": parameters})
    return {"type": "function", "function": function}


ASKED = {"messages": [USER], "tools": [tool("add", ADD), tool("now")], "max_tokens": 300}


def holds(call: dict[str, Any]) -> bool:
    """Whether a call is of one of the tools, with arguments that its schema allows."""
    arguments = json.loads(call["function"]["arguments"])
    if call["function"]["name"] == "now":
        return arguments == {}
    return list(arguments) == ["a", "b"] and all(type(x) is int and 0 <= x <= 9 for x in arguments.values())


@pytest.fixture(scope="module", params=[HERMES, BARE], ids=["marked", "bare"])
def policy(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("llguidance")
    return speaks(bigrams(vocabulary_size=VOCABULARY_SIZE), tmp_path_factory.mktemp("model"), request.param)


@pytest.mark.slow
def test_a_random_model_calls_where_it_must(policy: Any) -> None:
    async def work(client: Any) -> Any:
        several = {**ASKED, "tool_choice": "required", "n": 12, "seed": 1}
        answers = [await client.post("/chat/completions", json=several)]
        answers.append(await client.post("/chat/completions", json={**several, "parallel_tool_calls": False}))
        return [answer.json()["choices"] for answer in answers]

    several, single = talk(policy, work)
    ended = [choice for choice in several if choice["finish_reason"] != "length"]
    assert ended and {choice["finish_reason"] for choice in (*ended, *single)} == {"tool_calls"}
    assert all(choice["message"]["content"] is None for choice in (*ended, *single))
    calls = [choice["message"]["tool_calls"] for choice in ended]
    assert all(holds(call) for found in calls for call in found) and max(map(len, calls)) > 1
    calls = [choice["message"]["tool_calls"] for choice in single]
    assert all(holds(call) for found in calls for call in found) and {len(found) for found in calls} == {1}
    assert {found[0]["function"]["name"] for found in calls} == {"add", "now"}, "either can be called"


@pytest.mark.slow
def test_a_named_tool_is_called_whole_and_in_a_stream(policy: Any) -> None:
    async def work(client: Any) -> Any:
        named = {**ASKED, "tool_choice": {"type": "function", "function": {"name": "add"}}, "seed": 3}
        whole = await client.post("/chat/completions", json={**named, "n": 8})
        alone = await client.post("/chat/completions", json=named)
        return (
            whole.json(),
            alone.json(),
            events(await client.post("/chat/completions", json={**named, "stream": True})),
        )

    whole, alone, streamed = talk(policy, work)
    calls = [choice["message"]["tool_calls"] for choice in whole["choices"]]
    assert all(holds(call) for found in calls for call in found) and {call["function"]["name"] for [call] in calls} == {
        "add"
    }
    assert {choice["finish_reason"] for choice in whole["choices"]} == {"stop"}, "as the protocol has it"
    [expected] = alone["choices"][0]["message"]["tool_calls"]
    deltas = [delta for event in streamed for delta in event["choices"][0]["delta"].get("tool_calls", [])]
    assert "".join(delta["function"]["arguments"] for delta in deltas) == expected["function"]["arguments"]
    assert streamed[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_model_that_would_rather_talk_calls(tmp_path: Path) -> None:
    """The likeliest tokens are a text; the reply is a call of the shape that the template shows all the same."""
    pytest.importorskip("llguidance")

    async def work(client: Any) -> Any:
        asked = {**ASKED, "tools": [tool("now")], "tool_choice": "required", "parallel_tool_calls": False}
        return (
            await client.post("/chat/completions", json={**asked, "temperature": 0, "return_token_ids": True})
        ).json()

    [choice] = talk(says("No. " * 40, tmp_path), work)["choices"]
    written = bytes(choice["token_ids"][:-1]).decode()
    assert written.startswith(f"{OPEN}\n") and read_calls(written[len(OPEN) : written.index("</")]) is not None
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "now", "arguments": "{}"}


@pytest.mark.parametrize(
    ("parameters", "what"),
    [
        ({"type": "string"}, "are an object"),
        ({"$ref": "http://example.com/x"}, "nothing is fetched"),
        ({"not": {}}, "not"),
    ],
)
def test_arguments_that_cannot_be_held_are_refused(policy: Any, parameters: Any, what: str) -> None:
    async def work(client: Any) -> Any:
        asked = {**ASKED, "tools": [tool("f", parameters)], "tool_choice": "required"}
        return await client.post("/chat/completions", json=asked)

    answer = talk(policy, work)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "tools"
    assert what in answer.json()["error"]["message"]


def test_without_the_library_the_server_reports_it(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)

    async def work(client: Any) -> Any:
        return await client.post("/chat/completions", json={**ASKED, "tool_choice": "required"})

    answer = talk(says("x", tmp_path), work)
    assert answer.status_code == 400 and "posttrain[structured]" in answer.json()["error"]["message"]
