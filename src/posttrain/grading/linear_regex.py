r"""Matches regular expressions in time linear in the text, for any text.

Python's `re` backtracks, and a completion can make that take exponential time: ``(a+)+b`` does not end on thirty
letters, and ``<think>.*</think>\s*<answer>.*</answer>`` is quadratic. Here the pattern is simulated as an automaton
with a set of states (Thompson 1968). Each set that was reached is cached, so that the usual cost is one look-up per
character. The pattern is parsed by `re`'s own parser, and single characters are matched by `re` itself, so the syntax
is Python's.

Elements that depend on earlier matches cannot be matched this way and are refused: back-references, look-ahead,
look-behind, conditions, possessive repeats and atomic groups.
"""

import importlib
import re
from collections.abc import Callable, Iterable
from typing import Any

_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")

LARGEST = 4000
"""Most states of a pattern, with counted repeats expanded; the work per new character grows with it."""
REMEMBERED = 500_000
"""Most states in all cached sets; beyond that the cache is cleared."""

End = ""
"""The symbol after the last character."""
LastNewline = "\n$"
"""A line break that ends the text: ``$`` matches before it."""

Before = tuple[bool, bool, bool] | None
"""Of the character before a position: whether it is a line break, a word character, an ASCII word character."""
Condition = Callable[[Before, str], bool]


class Refused(ValueError):
    """A pattern that cannot be matched in linear time here; the message has the element and the reason."""


class LinearPattern:
    """A pattern that is ready to be matched."""

    def __init__(self, pattern: str, *, full: bool) -> None:
        """Read a pattern that `re.compile` accepts. Raises `Refused`."""
        parsed = _parser.parse(pattern)
        self._full = full
        self._edges: list[tuple[int, ...]] = []
        self._reads: dict[int, re.Pattern[str]] = {}
        self._conditions: dict[int, Condition] = {}
        self._accept = self._place()
        self._start = self._sequence(parsed, parsed.state.flags, self._accept)
        self._forget()

    def matches(self, text: str) -> bool:
        """Whether all of the text matches, or for a search any part of it."""
        state = 0
        symbols = [*text[:-1], LastNewline if text[-1:] == "\n" else text[-1:]] if text else []
        for symbol in symbols:
            following = self._table[state].get(symbol)
            if following is None:
                following = self._step(state, symbol)
            if following < 0:
                return following == _ACCEPTED
            state = following
        return self._closure(*self._sets[state], End)[1]

    # The pattern as a graph: each place has edges to the next ones, and may read a character or have a condition.

    def _place(self, *after: int) -> int:
        if len(self._edges) >= LARGEST:
            raise Refused(f"it is too large: with its counted repeats written out it has more than {LARGEST} places")
        self._edges.append(after)
        return len(self._edges) - 1

    def _sequence(self, elements: Any, flags: int, after: int) -> int:
        for operator, argument in reversed(list(elements)):
            after = self._element(str(operator), operator, argument, flags, after)
        return after

    def _element(self, name: str, operator: Any, argument: Any, flags: int, after: int) -> int:
        """Add one element of a parsed pattern before the place `after`; returns its first place."""
        match name:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                place = self._place(after)
                self._reads[place] = _one_character(operator, argument, flags)
                return place
            case "AT":
                place = self._place(after)
                self._conditions[place] = _condition(str(argument), flags)
                return place
            case "SUBPATTERN":
                _, added, removed, elements = argument
                kept = flags & ~_parser.TYPE_FLAGS if added & _parser.TYPE_FLAGS else flags
                return self._sequence(elements, (kept | added) & ~removed, after)
            case "BRANCH":
                return self._place(*[self._sequence(branch, flags, after) for branch in argument[1]])
            case "MAX_REPEAT" | "MIN_REPEAT":
                low, high, elements = argument
                return self._repeat(low, high, elements, flags, after)
        raise Refused(f"it has {_NAMES.get(name, name)}, which cannot be matched in time linear in the text")

    def _repeat(self, low: int, high: Any, elements: Any, flags: int, after: int) -> int:
        if high is _parser.MAXREPEAT:
            first = self._place()
            self._edges[first] = (self._sequence(elements, flags, first), after)
        else:
            first = after
            for _ in range(high - low):
                first = self._place(self._sequence(elements, flags, first), after)
        for _ in range(low):
            first = self._sequence(elements, flags, first)
        return first

    # The simulation: a state is a set of places and the previous character; states are created when first reached.

    def _forget(self) -> None:
        self._sets: list[tuple[frozenset[int], Before]] = [(frozenset({self._start}), None)]
        self._table: list[dict[str, int]] = [{}]
        self._numbers = {self._sets[0]: 0}
        self._size = 0

    def _step(self, state: int, symbol: str) -> int:
        """The state after one more character, cached; `_ACCEPTED` or `_DEAD` if the rest does not matter."""
        places, accepted = self._closure(*self._sets[state], symbol)
        if accepted and not self._full:
            return _ACCEPTED
        character = symbol[0]
        after = {self._edges[p][0] for p in places if p in self._reads and self._reads[p].match(character)}
        if not self._full:
            after.add(self._start)
        if not after:
            return _DEAD
        if self._size > REMEMBERED:
            self._forget()
            return self._number((frozenset(after), _before(character)))
        following = self._number((frozenset(after), _before(character)))
        self._table[state][symbol] = following
        self._size += 1
        return following

    def _number(self, found: tuple[frozenset[int], Before]) -> int:
        if found not in self._numbers:
            self._numbers[found] = len(self._sets)
            self._sets.append(found)
            self._table.append({})
            self._size += len(found[0])
        return self._numbers[found]

    def _closure(self, places: Iterable[int], before: Before, after: str) -> tuple[set[int], bool]:
        """All places that are reachable without reading, and whether the end of the pattern is among them."""
        reached = set(places)
        waiting = list(reached)
        while waiting:
            place = waiting.pop()
            condition = self._conditions.get(place)
            if place in self._reads or (condition and not condition(before, after)):
                continue
            new = [p for p in self._edges[place] if p not in reached]
            reached.update(new)
            waiting.extend(new)
        return reached, self._accept in reached


_ACCEPTED = -1
_DEAD = -2

_NAMES = {
    "GROUPREF": "a back-reference",
    "GROUPREF_EXISTS": "a condition on a group",
    "ASSERT": "a look-ahead or look-behind",
    "ASSERT_NOT": "a negative look-ahead or look-behind",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}


def _one_character(operator: Any, argument: Any, flags: int) -> re.Pattern[str]:
    """An element that reads one character, compiled by `re`."""
    state = _parser.State()
    state.flags = flags
    compiled: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [(operator, argument)]), flags)
    return compiled


def _before(character: str) -> Before:
    word = character.isalnum() or character == "_"
    return character == "\n", word, word and character.isascii()


def _condition(name: str, flags: int) -> Condition:
    r"""Whether ``^``, ``$``, ``\A``, ``\Z``, ``\b`` or ``\B`` holds between two characters."""
    lines = bool(flags & re.MULTILINE)
    word = 2 if flags & re.ASCII else 1

    def boundary(before: Before, after: str) -> bool:
        return (before is not None and before[word]) != (after != End and bool(_before(after[0])[word]))  # type: ignore[index]

    conditions: dict[str, Condition] = {
        "AT_BEGINNING": lambda before, after: before is None or (lines and before[0]),
        "AT_BEGINNING_STRING": lambda before, after: before is None,
        "AT_END": lambda before, after: after in (End, LastNewline) or (lines and after == "\n"),
        "AT_END_STRING": lambda before, after: after == End,
        "AT_BOUNDARY": boundary,
        "AT_NON_BOUNDARY": lambda before, after: not boundary(before, after) and (before is not None or after != End),
    }
    return conditions[name]
