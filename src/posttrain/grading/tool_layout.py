"""Completions with a thought, tool calls in lines of JSON and a response, each in tags, as ToolRL has them.

    <think>why</think>
    <tool_call>
    {"name": "f", "parameters": {"a": 1}}
    {"name": "g", "parameters": {}}
    </tool_call>
    <response>text</response>

``arguments`` may stand for ``parameters``. In a reference, calls may also be those of OpenAI's messages, with the
arguments as text, or in Python.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from posttrain.grading.calls import NoCalls, parse_calls
from posttrain.grading.strict_json import BadJSON, read_json

THINK: Final = "think"
CALL: Final = "tool_call"
RESPONSE: Final = "response"
LAYOUTS: Final = ((THINK, CALL), (THINK, RESPONSE), (THINK, CALL, RESPONSE), (THINK,))


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call with its parameters."""

    name: str
    parameters: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What a completion should have: its layout, and its calls in order."""

    layout: tuple[str, ...]
    calls: tuple[ToolCall, ...]


def read_reference(answer: str) -> Reference:
    """The reference in an answer: text in tags, calls alone, or a response. Raises `BadJSON` for unreadable calls."""
    present = tuple(tag for tag in (THINK, CALL, RESPONSE) if f"<{tag}>" in answer)
    if present:
        layout = present if present in LAYOUTS else (THINK, *(tag for tag in present if tag != THINK))
        return Reference(layout=layout, calls=tuple(read_calls(answer)) if CALL in layout else ())
    try:
        calls = _of_messages(answer) or tuple(
            ToolCall(name=call.name, parameters=dict(call.arguments)) for call in parse_calls(answer)
        )
    except (NoCalls, BadJSON):
        return Reference(layout=(THINK, RESPONSE), calls=())
    return Reference(layout=(THINK, CALL), calls=calls)


def shown_reference(answer: str) -> tuple[str, str, bool]:
    """A layout with ``{answer}`` in it, what belongs there, and whether that is calls. Raises `BadJSON`."""
    reference = read_reference(answer)
    inside = {THINK: "so", CALL: "{answer}", RESPONSE: "so" if reference.calls else "{answer}"}
    if reference.layout == (THINK,):
        inside[THINK] = "{answer}"
    blocks = [f"\n{inside[tag]}\n" if tag == CALL else inside[tag] for tag in reference.layout]
    form = "\n".join(f"<{tag}>{text}</{tag}>" for tag, text in zip(reference.layout, blocks, strict=True))
    if not reference.calls:
        tag = reference.layout[-1]
        marked = f"<{tag}>" in answer
        own = answer.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0] if marked else answer
        return form, own.strip(), False
    calls = [{"name": call.name, "parameters": call.parameters} for call in reference.calls]
    return form, "\n".join(json.dumps(call, ensure_ascii=False) for call in calls), True


def has_layout(text: str, layout: Sequence[str]) -> bool:
    """Whether a text is exactly these blocks, with a line break between them and the calls on lines of their own."""
    opened = [f"<{tag}>\n" if tag == CALL else f"<{tag}>" for tag in layout]
    closed = [f"\n</{tag}>" if tag == CALL else f"</{tag}>" for tag in layout]
    if any(text.count(f"<{end}{tag}>") != 1 for tag in layout for end in ("", "/")):
        return False
    place = 0
    for number, (start, end) in enumerate(zip(opened, closed, strict=True)):
        if not text.startswith(start, place):
            return False
        found = text.find(end, place + len(start))
        if found < 0:
            return False
        place = found + len(end)
        if number + 1 < len(layout):
            if not text.startswith("\n", place):
                return False
            place += 1
    return place == len(text)


def read_calls(text: str) -> list[ToolCall]:
    """The calls of the first block, one a line. Raises `BadJSON` for anything else."""
    _, opened, rest = text.partition(f"<{CALL}>")
    block, closed, _ = rest.partition(f"</{CALL}>")
    if not opened or not closed:
        raise BadJSON(f"has no <{CALL}>...</{CALL}>")
    return [_call(read_json(line)) for line in block.strip().split("\n")]


def _call(item: Any) -> ToolCall:
    if not isinstance(item, dict):
        raise BadJSON("has a line that is no call")
    parameters = item.get("parameters", item.get("arguments"))
    if not isinstance(item.get("name"), str) or not isinstance(parameters, dict):
        raise BadJSON("has a call without a name, or without parameters")
    return ToolCall(name=item["name"], parameters=parameters)


def _of_messages(answer: str) -> tuple[ToolCall, ...]:
    """The calls of an OpenAI message; empty for another form."""
    if '"function"' not in answer:
        return ()
    value = read_json(answer)
    items = value if isinstance(value, list) else [value]
    functions = [item.get("function") if isinstance(item, dict) else None for item in items]
    calls = []
    for function in functions:
        if not isinstance(function, dict):
            return ()
        arguments = function.get("arguments", {})
        own = read_json(arguments) if isinstance(arguments, str) else arguments
        calls.append(_call({"name": function.get("name"), "parameters": own}))
    return tuple(calls)
