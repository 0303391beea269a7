"""Calls of tools: what the model is shown, and what is read from its replies."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.serving.tools import Call, CallReader
from tests.serving.speaking import BARE, HERMES, says, talk, tokenizer_of
from tests.serving.test_server import events

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "adds <|end|>",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
CALL = '{"name": "add", "arguments": {"a": 1, "b": "é"}}'
ADD = Call("add", '{"a": 1, "b": "é"}')
USER = {"role": "user", "content": "1+2?"}
MARKED, UNMARKED = "like <tool_call>", "like JSON"


def read(prompt: str, text: str, size: int) -> list[str | Call]:
    """What a reader gives for a text in pieces of a size; neighbouring texts as one."""
    reader, found = CallReader(prompt), []
    for begin in range(0, len(text), size):
        found += reader.push(text[begin : begin + size])
    joined: list[str | Call] = []
    for piece in [*found, *reader.end()]:
        if isinstance(piece, str) and joined and isinstance(joined[-1], str):
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


@pytest.mark.parametrize(
    ("prompt", "text", "found"),
    [
        (MARKED, f"<tool_call>\n{CALL}\n</tool_call>", [ADD]),
        (
            MARKED,
            f"I add. \n<tool_call>{CALL}</tool_call>\n<tool_call>[{CALL}, {CALL}]</tool_call>\n",
            ["I add.", *[ADD] * 3],
        ),
        (MARKED, f"<tool_call>{CALL}", [ADD]),
        (MARKED, "a < b <tool\n", ["a < b <tool\n"]),
        (MARKED, "<tool_call>{oops}</tool_call> ", ["<tool_call>{oops}</tool_call> "]),
        (MARKED, "<tool_call>{oops", ["<tool_call>{oops"]),
        (MARKED, "  ", ["  "]),
        (MARKED, CALL, [CALL]),
        (UNMARKED, f" {CALL} ", [ADD]),
        (UNMARKED, f"[{CALL},{CALL}]", [ADD, ADD]),
        (UNMARKED, '{"name": "now", "parameters": {}}', [Call("now", "{}")]),
        (UNMARKED, '{"name": "add", "arguments": 5}', ['{"name": "add", "arguments": 5}']),
        (UNMARKED, "[" * 5000, ["[" * 5000]),
        (UNMARKED, f"So: {CALL}", [f"So: {CALL}"]),
        (UNMARKED, "", []),
    ],
)
def test_calls_are_found_however_the_text_is_cut(prompt: str, text: str, found: list[str | Call]) -> None:
    for size in (1, 3, 7, len(text) + 1):
        assert read(prompt, text, size) == found


@pytest.mark.parametrize(("template", "reply"), [(HERMES, f"<tool_call>{CALL}</tool_call>"), (BARE, f"[{CALL}]")])
def test_a_call_has_the_form_of_the_protocol(template: str, reply: str, tmp_path: Path) -> None:
    async def work(client: Any) -> Any:
        asked = {"messages": [USER], "tools": [TOOL], "temperature": 0}
        whole = await client.post("/chat/completions", json=asked)
        quiet = await client.post("/chat/completions", json={**asked, "tool_choice": "none"})
        streamed = await client.post("/chat/completions", json={**asked, "stream": True})
        return whole.json(), quiet.json(), events(streamed)

    whole, quiet, streamed = talk(says(reply, tmp_path, template), work)
    [choice] = whole["choices"]
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None
    assert call["type"] == "function" and call["function"] == {"name": "add", "arguments": ADD.arguments}
    assert quiet["choices"][0]["message"] == {"role": "assistant", "content": reply}
    assert quiet["usage"]["prompt_tokens"] < whole["usage"]["prompt_tokens"], "the tools are not shown"
    *_, named, given, last = [event["choices"][0] for event in streamed]
    assert named["delta"]["tool_calls"][0]["function"] == {"name": "add", "arguments": ""}
    assert given["delta"]["tool_calls"] == [{"index": 0, "function": {"arguments": ADD.arguments}}]
    assert (last["delta"], last["finish_reason"]) == ({}, "tool_calls")


def test_a_conversation_with_tools_reaches_the_template_and_special_tokens_stay_text(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(tmp_path)
    call = {"id": "c<|end|>1", "type": "function", "function": {"name": "add", "arguments": {"a": "<|end|>"}}}
    messages = [
        {"role": "user<|user|>", "content": "hi"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "3", "tool_call_id": "c<|end|>1"},
    ]
    ids = tokenizer.encode_chat(messages, tools=[TOOL])  # type: ignore[arg-type]
    text = tokenizer.decode(ids)
    assert '"description": "adds <|end|>"' in text and '{"name": "add", "arguments": {"a": "<|end|>"}}' in text
    assert "tool:3(c<|end|>1)" in text
    special = tokenizer.special_tokens
    assert ids.tolist().count(special["<|end|>"]) == 4, "those of the template: a system message and three others"
    assert ids.tolist().count(special["<|user|>"]) == 3


def test_a_template_without_a_place_for_tools_is_an_error(tmp_path: Path) -> None:
    plain = "{% for m in messages %}{{ '<|user|>' ~ m.content }}{% endfor %}{{ '<|assistant|>' }}"
    called = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}

    async def work(client: Any) -> list[str]:
        bodies = [
            {"messages": [USER], "tools": [TOOL]},
            {"messages": [USER, {"role": "assistant", "tool_calls": [called]}]},
        ]
        answers = [await client.post("/chat/completions", json=body) for body in bodies]
        assert {answer.status_code for answer in answers} == {400}
        return [answer.json()["error"]["message"] for answer in answers]

    tools, calls = talk(says("x", tmp_path, plain), work)
    assert "no place for tools" in tools and "no place for the tool_calls" in calls


@pytest.mark.slow
def test_the_client_library_calls_a_tool_and_answers(tmp_path: Path) -> None:
    openai = pytest.importorskip("openai")
    import asyncio

    import httpx2

    from posttrain.serving.server import Service
    from tests.engines.scripted import serve

    service = Service(serve(says(f"I add.<tool_call>{CALL}</tool_call>", tmp_path)), "tester")

    async def run() -> None:
        transport = httpx2.ASGITransport(app=service.app())
        http = openai.DefaultAsyncHttpxClient(transport=transport)
        async with openai.AsyncOpenAI(base_url="http://test/v1", api_key="x", http_client=http) as client:
            asked = {"model": "tester", "tools": [TOOL], "temperature": 0}
            reply = (await client.chat.completions.create(messages=[USER], **asked)).choices[0].message
            assert reply.content == "I add." and json.loads(reply.tool_calls[0].function.arguments)["b"] == "é"
            result = {"role": "tool", "tool_call_id": reply.tool_calls[0].id, "content": "3"}
            again = await client.chat.completions.create(messages=[USER, reply.model_dump(), result], **asked)
            assert again.usage.prompt_tokens > 100
            arguments = ""
            async for chunk in await client.chat.completions.create(messages=[USER], stream=True, **asked):
                for call in chunk.choices[0].delta.tool_calls or []:
                    arguments += call.function.arguments
            assert arguments == ADD.arguments

    asyncio.run(run())
