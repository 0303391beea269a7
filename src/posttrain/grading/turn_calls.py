"""Reads the tool calls of a model's turn, in the forms that models write.

    json     {"name": "f", "arguments": {"a": 1}}                       the whole turn, or its lines; lists too
    hermes   <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>         Hermes, Qwen 2.5 and 3
    qwen     <tool_call><function=f><parameter=a>1</parameter></function></tool_call>        Qwen3-Coder
    python   f(a=1)     the whole turn or its lines, or a block between ```python and ```
    tags     <f>text</f>     a tool with one parameter: <search>query</search>

Text before and after a call is free in the forms with tags. Each call is read by itself: one that cannot be read has an
error and takes no other with it. A call that was cut, without its closing tag or bracket, cannot be read, so it is not
run. Nothing is evaluated.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from posttrain.grading.calls import MOST_CALLS, MOST_CHARACTERS, NoCalls, parse_calls
from posttrain.grading.strict_json import BadJSON, read_json

CallForm = Literal["json", "hermes", "qwen", "python", "tags"]

_BLOCK: Final = re.compile(r"<tool_call>(.*?)(</tool_call>|(?=<tool_call>)|\Z)", re.DOTALL)
_FUNCTION: Final = re.compile(r"\s*<function=([\w.\-]+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER: Final = re.compile(r"<parameter=([\w.\-]+)>(.*?)</parameter>", re.DOTALL)
_FENCE: Final = re.compile(r"```(?:python|tool_code)\n(.*?)```", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class TurnCall:
    """A call of a turn, or why one could not be read."""

    name: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    texts: bool = False
    """Whether the arguments are texts that the tool's types have to be read from (``qwen`` and ``tags``)."""
    fault: str = ""
    """What is wrong with it; empty for a call that was read."""


def read_turn(text: str, form: CallForm, names: Collection[str] = ()) -> list[TurnCall]:
    """The calls of a turn, in their order; empty for a turn without any. `names` are the tools, for ``tags``."""
    if form == "tags":
        found = _tagged(text, names)
    elif form in ("hermes", "qwen"):
        reader = _from_json if form == "hermes" else _from_function
        found = [
            reader(block[1]) if block[2] else TurnCall(fault="the call has no end") for block in _BLOCK.finditer(text)
        ]
    elif form == "python":
        fenced = "\n".join(block[1] for block in _FENCE.finditer(text))
        found = _lines(fenced or text, sure=bool(fenced))
    else:
        found = _lines(text, sure=False)
    over = TurnCall(fault=f"a turn has at most {MOST_CALLS} calls")
    return [call if place < MOST_CALLS else over for place, call in enumerate(found)]


def written_call(name: str, arguments: Mapping[str, Any], form: CallForm) -> str:
    """A call in a form, as `read_turn` reads it; ``tags`` takes the first argument alone."""
    if form == "python":
        return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"
    if form == "tags":
        return f"<{name}>{_as_text(next(iter(arguments.values()), ''))}</{name}>"
    if form == "qwen":
        pairs = "".join(f"<parameter={key}>\n{_as_text(value)}\n</parameter>" for key, value in arguments.items())
        return f"<tool_call><function={name}>{pairs}</function></tool_call>"
    call = json.dumps({"name": name, "arguments": dict(arguments)})
    return call if form == "json" else f"<tool_call>{call}</tool_call>"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _lines(text: str, *, sure: bool) -> list[TurnCall]:
    """The calls of a text that is nothing else, or of its lines; other lines are no calls unless it is `sure`."""
    whole = _parsed(text)
    if whole is not None:
        return whole
    found: list[TurnCall] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        parsed = _parsed(line)
        if parsed is not None:
            found += parsed
        elif sure or re.match(r'\{\s*"name"|[A-Za-z_]\w*\(', line):
            found.append(TurnCall(fault=_why(line)))
    return found


def _parsed(text: str) -> list[TurnCall] | None:
    try:
        return [TurnCall(name=call.name, arguments=call.arguments) for call in parse_calls(text)]
    except NoCalls:
        return None


def _why(text: str) -> str:
    try:
        parse_calls(text)
    except NoCalls as error:
        return f"the call {error}"
    return ""


def _from_json(text: str) -> TurnCall:
    if len(text) > MOST_CHARACTERS:
        return TurnCall(fault=f"the call has {len(text)} characters, {MOST_CHARACTERS} are read")
    try:
        value = read_json(text)
    except BadJSON as error:
        return TurnCall(fault=f"the call {error}")
    arguments = value.get("arguments", value.get("parameters", {})) if isinstance(value, dict) else None
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or not isinstance(arguments, dict):
        return TurnCall(fault="the call has no name, or no mapping of arguments")
    return TurnCall(name=value["name"], arguments=arguments)


def _from_function(text: str) -> TurnCall:
    matched = _FUNCTION.fullmatch(text)
    if matched is None:
        return TurnCall(fault="the call is no <function=NAME>...</function>")
    pairs = _PARAMETER.findall(matched[2])
    if len({name for name, _ in pairs}) < len(pairs):
        return TurnCall(fault="the call has a parameter twice")
    return TurnCall(name=matched[1], arguments={name: value.strip("\n") for name, value in pairs}, texts=True)


def _tagged(text: str, names: Collection[str]) -> list[TurnCall]:
    if not names:
        return []
    any_name = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    found = re.finditer(rf"<({any_name})>(.*?)(</\1>|\Z)", text, re.DOTALL)
    return [
        TurnCall(name=tag[1], arguments={"": tag[2]}, texts=True)
        if tag[3]
        else TurnCall(fault=f"the call of {tag[1]} has no end")
        for tag in found
    ]
