"""Typed string tools, chains of them, and a plan as text: `` vowels > count > spell``.

A tool takes a text or a number and gives one. In a chain each tool takes what the one before it gives, and none is used
twice. A plan is carried out on an input; ``vowels > count > spell`` of ``banana`` gives ``three``.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

SEPARATOR: Final = " >"
MOST: Final = 10
"""Tools of a plan at most."""
LARGEST: Final = 10**6
"""Numbers are kept below this, so that no chain of tools grows without bound."""
_NAMES: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, kw_only=True)
class Tool:
    """One tool."""

    takes: str
    gives: str
    phrase: str
    """What it does, in words, in tasks."""
    run: Callable[[Any], Any]


def spelt(number: int) -> str:
    """The digits of a number in words."""
    return " ".join(_NAMES[int(digit)] for digit in str(abs(number)))


TOOLS: Final[Mapping[str, Tool]] = {
    "mirror": Tool(takes="text", gives="text", phrase="turn it round", run=lambda x: x[::-1]),
    "upper": Tool(takes="text", gives="text", phrase="make it large", run=str.upper),
    "order": Tool(takes="text", gives="text", phrase="sort its letters", run=lambda x: "".join(sorted(x))),
    "vowels": Tool(
        takes="text", gives="text", phrase="keep its vowels", run=lambda x: "".join(c for c in x if c in "aeiouAEIOU")
    ),
    "count": Tool(takes="text", gives="number", phrase="find its length", run=len),
    "double": Tool(takes="number", gives="number", phrase="take it twice", run=lambda x: 2 * x % LARGEST),
    "next": Tool(takes="number", gives="number", phrase="add one", run=lambda x: (x + 1) % LARGEST),
    "spell": Tool(takes="number", gives="text", phrase="say it in words", run=spelt),
}
START: Final = "text"
"""What the input of a task is."""


def tools_of(plan: str) -> list[str]:
    """The names in a plan, whether they are tools or not."""
    return [name.strip() for name in plan.split(SEPARATOR.strip())]


def plan_of(names: Sequence[str]) -> str:
    """A chain as a plan."""
    return " " + f"{SEPARATOR} ".join(names)


def fault(names: Sequence[str], goal: str) -> str:
    """Why a chain does not take a text to the goal; empty if it does. Every link is checked, not its ends alone."""
    unknown = [name for name in names if name not in TOOLS]
    if unknown:
        return f"there is no tool '{unknown[0][:20]}'"
    if len(names) > MOST or len(set(names)) < len(names):
        return f"a tool is used twice, or there are more than {MOST}"
    kind = START
    for name in names:
        if TOOLS[name].takes != kind:
            return f"{name} takes a {TOOLS[name].takes}, not a {kind}"
        kind = TOOLS[name].gives
    return "" if kind == goal else f"gives a {kind}, not a {goal}"


def carried_out(names: Sequence[str], given: str) -> str:
    """The result of a valid chain."""
    value: Any = given
    for name in names:
        value = TOOLS[name].run(value)
    return str(value)


def alike(found: str, wanted: str) -> float:
    """Similarity of two texts in [0, 1]: twice the characters in common blocks over all characters."""
    return difflib.SequenceMatcher(None, found, wanted, autojunk=False).ratio()


def follow(plan: str) -> list[str]:
    """What may follow a plan: any tool at first, then those that take what the last one gives, or the end."""
    if not plan:
        return [f" {name}" for name in TOOLS]
    names = tools_of(plan)
    if len(names) >= MOST:
        return [""]
    kind = TOOLS[names[-1]].gives
    return ["", *(f"{SEPARATOR} {name}" for name, tool in TOOLS.items() if tool.takes == kind and name not in names)]


def chains(most: int) -> list[tuple[str, ...]]:
    """Every valid chain of up to `most` tools that begins with a text, the shortest first."""
    found: list[tuple[str, ...]] = []
    last: list[tuple[str, ...]] = [()]
    for _ in range(most):
        last = [
            (*names, name)
            for names in last
            for name, tool in TOOLS.items()
            if name not in names and tool.takes == (TOOLS[names[-1]].gives if names else START)
        ]
        found += last
    return found
