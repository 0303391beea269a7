"""Requests as they are read: types, nulls and sizes."""

import json
from typing import Any

import pytest

from posttrain.serving import wire
from posttrain.serving.wire import Refused, read_chat_request, read_text_request

USER = {"role": "user", "content": "hi"}


def text(**fields: Any) -> wire.TextRequest:
    return read_text_request(json.dumps(fields).encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", True),
        ("max_tokens", "3"),
        ("max_tokens", 3.0),
        ("max_tokens", 2**63),
        ("n", True),
        ("n", "2"),
        ("temperature", "0.5"),
        ("temperature", True),
        ("top_p", "1"),
        ("top_k", 5.0),
        ("min_p", False),
        ("seed", True),
        ("seed", 1.0),
        ("seed", 2**64),
        ("stream", 1),
        ("stream", "yes"),
        ("logprobs", True),
        ("logprobs", "0"),
        ("stop", 5),
        ("stream_options", {"include_usage": 1}),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(Refused) as refused:
        text(prompt="a", **{name: value})
    assert refused.value.param == name and refused.value.status == 400
    json.dumps(refused.value.body, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "fields", [{"prompt": "\ud800"}, {"prompt": ["a", "b\udfff"]}, {"prompt": "a", "stop": ["\ud800"]}, {"\ud800": 1}]
)
def test_half_of_a_character_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="lone surrogate"):
        text(**fields)
    assert text(prompt="\U0001f600").prompt == ("\U0001f600",), "both halves are one"


def test_whole_numbers_are_numbers() -> None:
    asked = text(prompt="a", temperature=1, top_p=1, min_p=0, seed=-(2**63))
    assert (asked.temperature, asked.top_p, asked.min_p) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    "prompt", [[[]], [["a"]], [1, "a"], ["a", 1], [True], [[1], 2], {"a": 1}, 5, [1.0], [[2**63]], [-1]]
)
def test_a_prompt_of_no_form_is_refused(prompt: Any) -> None:
    with pytest.raises(Refused) as refused:
        text(prompt=prompt)
    assert refused.value.param == "prompt" and len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("prompt", "read"),
    [("a", ("a",)), (["a", "b"], ("a", "b")), ([1, 2], ([1, 2],)), ([[1], [2, 3]], ([1], [2, 3])), ("", ("",))],
)
def test_prompts_of_every_form(prompt: Any, read: tuple[Any, ...]) -> None:
    assert text(prompt=prompt).prompt == read


def test_a_reply_is_accepted_as_clients_send_it_back() -> None:
    """What ``message.model_dump()`` of the OpenAI client gives."""
    reply = {
        "content": "hello",
        "refusal": None,
        "role": "assistant",
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    }
    parts = {"role": "user", "content": [{"type": "text", "text": "more", "image_url": None}], "name": None}
    asked = read_chat_request(json.dumps({"messages": [USER, reply, parts]}).encode())
    assert [message.plain for message in asked.messages] == [
        USER,
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "more"},
    ]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    asked = read_chat_request(json.dumps({"messages": [{**reply, "content": None, "tool_calls": [call]}]}).encode())
    plain = {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    assert asked.messages[0].plain == {"role": "assistant", "content": "", "tool_calls": [plain]}


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def deep(levels: int) -> dict[str, Any]:
    return {"a": deep(levels - 1)} if levels else {}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("tools", {"tools": [TOOL] * 129}),
        ("tools", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
        ("tools", {"tools": [{"type": "function", "function": {"name": "f", "parameters": deep(30)}}]}),
        ("tools", {"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}),
        ("tools", {"tools": [{"type": "function", "function": {"name": "f", "parameters": "{}"}}]}),
        ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}}),
        ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "function"}}),
        ("tool_choice", {"tools": [TOOL], "tool_choice": "any"}),
        ("tool_choice", {"tool_choice": "required"}),
        ("parallel_tool_calls", {"tools": [TOOL], "parallel_tool_calls": False}),
        ("response_format", {"tools": [TOOL], "response_format": {"type": "json_object"}}),
        (
            "response_format",
            {"tools": [TOOL], "tool_choice": "required", "response_format": {"type": "json_object"}},
        ),
        ("response_format", {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}),
        ("response_format", {"response_format": "json_object"}),
        ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
        ("top_logprobs", {"logprobs": True, "top_logprobs": True}),
        ("logprobs", {"logprobs": 1}),
        ("return_token_ids", {"return_token_ids": "yes"}),
    ],
)
def test_a_field_out_of_its_bounds_is_refused_by_name(name: str, fields: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        read_chat_request(json.dumps({"messages": [USER], **fields}).encode())
    assert refused.value.param == name and refused.value.status == 400 and len(str(refused.value)) < 300


@pytest.mark.parametrize("arguments", ["", "[1]", "{", "x" * 200_000, json.dumps(deep(30)), "[" * 100_000])
def test_arguments_of_a_call_are_an_object(arguments: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    body = json.dumps({"messages": [USER, {"role": "assistant", "tool_calls": [call]}]}).encode()
    if not arguments:
        assert read_chat_request(body).messages[1].plain["tool_calls"][0]["function"]["arguments"] == {}  # type: ignore[typeddict-item]
        return
    with pytest.raises(Refused, match="arguments"):
        [message.plain for message in read_chat_request(body).messages]


@pytest.mark.parametrize("message", [{}, 5, {"role": "user", "content": [{"type": "image"}] * 500}])
def test_the_first_error_of_many_is_enough(message: Any) -> None:
    """A list of wrong messages or parts gives no error for each."""
    with pytest.raises(wire.ValidationError) as failed:
        wire._adapter(wire.ChatRequest).validate_python({"messages": [message] * 1000})
    assert failed.value.error_count() <= 8


def test_a_request_of_too_many_values_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire.json, "loads", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(Refused, match="values") as refused:
        read_text_request(b'{"prompt": [' + b"1," * (wire.MOST_VALUES + 1) + b"1]}")
    assert refused.value.status == 413


def test_errors_can_be_sent_and_printed() -> None:
    body = Refused("a\x1b]0;title\x07\ud800" + "x" * 10_000, param="\udc80").body
    assert len(json.dumps(body, ensure_ascii=False).encode()) < 700
    assert "\x1b" not in body["error"]["message"] and body["error"]["param"] == "\\udc80"
