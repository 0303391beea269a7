"""Lines that calls reach, and what crashes, hangs or ends a program."""

import asyncio

import pytest

from posttrain.errors import UserError
from posttrain.grading.line_coverage import Ran, run_calls, target_of
from posttrain.sandbox import Limits, open_pool

SOURCE = '''"""Text."""
from __future__ import annotations

import os

def helper(n):
    while n:
        n -= 1
    return n

def parse(text: str):
    """Reads."""
    if text == "a":
        return helper(3)
    elif text.startswith("h"):
        helper(-1)
    try:
        return 1 // len(text)
    except ZeroDivisionError:
        if text is None or text == "x":
            pass
        raise KeyError(text)
    finally:
        if text == "end":
            os._exit(0)
        if text == "lie":
            print('[0, ["value", ["str", "[]"]]]')
'''


def ran(*texts: object, source: str = SOURCE, ticks: int = 1000) -> list[Ran]:
    target = target_of(source, "parse")
    given = [text if isinstance(text, tuple) else (text,) for text in texts]
    return asyncio.run(run_calls(target, given, open_pool(), Limits(cpu_s=5.0), ticks))


def test_parents_and_guards_of_lines() -> None:
    target = target_of(SOURCE, "parse")
    assert target.text == "str" and target.parameters == ("text",)
    assert target.parents[13] is None and target.parents[14] == 13 and target.parents[16] == 15
    assert target.guards[14] == "text == 'a'" and target.guards[8] == "n"
    assert target.guards[16] == "not(text == 'a') text.startswith('h')"
    assert target.guards[21] == "text is None or text == 'x'" and target.guards[18] == ""
    assert set(target.constants) >= {"a", "h", "x", "end"}


def test_what_calls_reach_and_how_they_end() -> None:
    some = ran("a", "b", "", "h", "end", "c", ("a", "b"), "lie")
    assert [(own.end, own.error) for own in some] == [
        ("returned", ""),
        ("returned", ""),
        ("crashed", "KeyError"),
        ("hung", ""),
        ("ended", ""),
        ("returned", ""),  # what comes after it is called again
        ("refused", ""),
        ("returned", ""),  # its output is no result
    ]
    assert {7, 8, 9, 13, 14} <= some[0].lines and 18 not in some[0].lines
    assert {18, 20, 22} <= some[2].lines and some[2].line == 26 and not {12, 21} & some[2].lines
    assert some[3].line == 8 and not some[6].lines


def test_programs_that_cannot_be_run_are_refused() -> None:
    with pytest.raises(UserError, match="no function 'parse' at the top level; functions there: f, g"):
        target_of("def f(): pass\ndef g(): pass\n", "parse")
    with pytest.raises(UserError, match="cannot be parsed"):
        target_of("def f(:", "f")
    with pytest.raises(UserError, match="are taken"):
        target_of("def f():\n    _posttrain_tick()\n", "f")
    with pytest.raises(UserError, match="before any call of a function: ModuleNotFoundError"):
        ran("a", source="import nothing_of_this_name\ndef parse(text):\n    return text\n")
