"""Calls of tools, found in what a model writes, as it comes.

Two shapes are read. Where the chat template shows ``<tool_call>`` (Hermes, Qwen), a call is an object, or a list of
them, between ``<tool_call>`` and ``</tool_call>``. Otherwise a reply that is one JSON object, or a list of objects, is
calls. An object has ``name``, and ``arguments`` or ``parameters``. What looks like a call and is none stays text.

Where a request forces a call, the reply is decoded under a grammar of the same shape (`grammar_of`).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OPEN, CLOSE = "<tool_call>", "</tool_call>"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: str
    """A JSON object."""


def read_calls(text: str) -> list[Call] | None:
    """The calls of a JSON object or list; None where it is anything else."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        return None
    several = given if isinstance(given, list) else [given]
    calls = [_read_call(one) for one in several]
    found = [call for call in calls if call is not None]
    return found if found and len(found) == len(calls) else None


def _read_call(given: Any) -> Call | None:
    if not isinstance(given, dict) or not isinstance(given.get("name"), str) or not given["name"]:
        return None
    arguments = given.get("arguments", given.get("parameters", {}))
    if not isinstance(arguments, dict):
        return None
    return Call(given["name"], json.dumps(arguments, ensure_ascii=False))


def is_marked(prompt: str) -> bool:
    """Whether calls stand between marks, by what the chat template makes of the tools."""
    return OPEN in prompt


def grammar_of(tools: Mapping[str, Mapping[str, Any]], *, marked: bool, several: bool) -> str:
    """A Lark grammar of a reply that calls one of the tools, or `several` times one of them.

    `tools` have the JSON schemas of their arguments by name. Each is a document of its own, so that references in it
    hold.
    """
    rules = []
    for number, (name, schema) in enumerate(tools.items()):
        opened = json.dumps({"name": name})[:-1] + ', "arguments": '
        rules.append(f"call_{number}: {json.dumps(opened)} arguments_{number} {json.dumps('}')}")
        rules.append(f"arguments_{number}: %json {json.dumps(schema)}")
    rules.append(f"call: {' | '.join(f'call_{number}' for number in range(len(tools)))}")
    if marked:
        before, after, between = map(json.dumps, (f"{OPEN}\n", f"\n{CLOSE}", "\n"))
        rules.append(f"marked: {before} call {after}")
        start = f"marked ({between} marked)*" if several else "marked"
    else:
        start = 'call | "[" call (", " call)* "]"' if several else "call"
    return "\n".join([f"start: {start}", *rules])


def held_back(text: str, marks: Sequence[str]) -> int:
    """Characters at the end of a text that may be the first part of one of the marks."""
    longest = min(len(text), max(map(len, marks), default=1) - 1)
    for size in range(longest, 0, -1):
        if any(mark.startswith(text[-size:]) for mark in marks):
            return size
    return 0


class CallReader:
    """Splits a reply into text and calls; text is given as soon as it cannot be part of a call."""

    def __init__(self, prompt: str) -> None:
        """`prompt` is what the chat template makes of the tools."""
        self._marked = is_marked(prompt)
        self._waiting = ""
        self._inside = False
        self._plain = False  # of a reply without marks, whether it is no call
        self._blank = ""  # white space, which goes with what follows it
        self.calls = 0

    def push(self, text: str) -> list[str | Call]:
        """What is settled with some more text."""
        self._waiting += text
        if not self._marked:
            return self._push_bare()
        found: list[str | Call] = []
        while True:
            mark = CLOSE if self._inside else OPEN
            before, there, after = self._waiting.partition(mark)
            if not there:
                break
            self._waiting = after
            found += self._read(before) if self._inside else self._text(before)
            self._inside = not self._inside
        if not self._inside:
            kept = held_back(self._waiting, [OPEN])
            found += self._text(self._waiting[: len(self._waiting) - kept])
            self._waiting = self._waiting[len(self._waiting) - kept :]
        return found

    def end(self) -> list[str | Call]:
        """What is left at the end of the reply."""
        rest, self._waiting = self._waiting, ""
        if self._inside or not (self._marked or self._plain):
            calls = read_calls(rest)
            if calls is not None:
                return self._take(calls)
            rest = f"{OPEN}{rest}" if self._inside else rest
        blank, self._blank = self._blank, ""
        whole = blank + rest
        return [whole] if whole.strip() or (whole and not self.calls) else []

    def _push_bare(self) -> list[str | Call]:
        start = self._waiting.lstrip()[:1]
        self._plain = self._plain or (start != "" and start not in "[{")
        if not self._plain:
            return []
        text, self._waiting = self._waiting, ""
        return [text] if text else []

    def _read(self, text: str) -> list[str | Call]:
        """The calls between two marks, or the text that they are."""
        calls = read_calls(text)
        return self._text(f"{OPEN}{text}{CLOSE}") if calls is None else self._take(calls)

    def _take(self, calls: list[Call]) -> list[str | Call]:
        self._blank = ""
        self.calls += len(calls)
        return list(calls)

    def _text(self, text: str) -> list[str | Call]:
        """A text without the white space at its end, which is dropped if a call follows."""
        whole = self._blank + text
        visible = whole.rstrip()
        self._blank = whole[len(visible) :]
        return [visible] if visible else []
