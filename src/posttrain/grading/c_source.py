"""The parts of a C file that fuzzing needs: a function's parameters, the conditions around its lines, constants.

A file is read as tokens, without the preprocessor: macros are names, and lines of ``#`` are skipped. The conditions of
a line are those of the ``if``, ``while``, ``for`` and ``switch`` statements that it is inside of, outermost first.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from posttrain.errors import UserError

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:\\\n|[^\n])*)
    |(?P<text>"(?:\\.|[^"\\\n])*")|(?P<letter>'(?:\\.|[^'\\\n])*')
    |(?P<number>\.?[0-9](?:[eEpP][+-]|[\w.])*)|(?P<name>[A-Za-z_]\w*)
    |(?P<sign><<=|>>=|\.\.\.|[-+*/%&|^=!<>]=|&&|\|\||->|\+\+|--|<<|>>|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_WHOLE: Final = {"char": 8, "short": 16, "int": 32, "long": 64, "size_t": 64, "ssize_t": 64, "bool": 1, "_Bool": 1}
_BYTES: Final = {"char", "uint8_t", "int8_t", "void"}
_DECLARED: Final = {"const", "unsigned", "signed", "struct", "volatile", "restrict", "register"}
_HEADS: Final = ("if", "while", "for", "switch")
DEEPEST: Final = 200
"""Deepest nesting of statements that is read."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: a number between bounds, a pointer to bytes, or a size."""

    name: str
    type: str
    kind: Literal["whole", "real", "bytes", "other"]
    low: int = 0
    high: int = 0


@dataclass
class Source:
    """What was read of a file."""

    functions: dict[str, tuple[Parameter, ...]] = field(default_factory=dict)
    parents: dict[int, int | None] = field(default_factory=dict)
    """By line of a statement, the line of the statement around it."""
    guards: dict[int, str] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    line: int


def read_source(text: str) -> Source:
    """Functions, and statements in them. Raises `UserError` for brackets that do not match, or a deep nesting."""
    tokens, line = [], 1
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "space":
            tokens.append(_Token(str(match.lastgroup), match[0], line))
        line += match[0].count("\n")
    found, place = Source(), 0
    while place < len(tokens):
        if tokens[place].text in "([":
            place = _closed(tokens, place)
        elif tokens[place].text == "{":
            end = _closed(tokens, place)
            head = _head(tokens, place)
            if head is not None:
                found.functions[head[0]] = head[1]
                _Body(tokens, found).read(place + 1, end - 1, None, (), 0)
            place = end
        else:
            place += 1
    for token in tokens:
        value = _constant(token)
        if value:
            found.constants[repr(value)] = value
    return found


def _closed(tokens: list[_Token], place: int) -> int:
    """The place after the bracket that closes the one here."""
    pairs, waiting = {"(": ")", "[": "]", "{": "}"}, []
    for at in range(place, len(tokens)):
        text = tokens[at].text
        if tokens[at].kind == "sign" and text in pairs:
            waiting.append(pairs[text])
        elif tokens[at].kind == "sign" and text in ")]}":
            if not waiting or waiting.pop() != text:
                break
            if not waiting:
                return at + 1
    raise UserError(f"the bracket in line {tokens[place].line} is not closed")


def _head(tokens: list[_Token], place: int) -> tuple[str, tuple[Parameter, ...]] | None:
    """Name and parameters of the function whose body begins here; None where it is none."""
    if place < 3 or tokens[place - 1].text != ")":
        return None
    depth, at = 0, place - 1
    while at >= 0:
        depth += {")": 1, "(": -1}.get(tokens[at].text, 0)
        if depth == 0:
            break
        at -= 1
    if at < 1 or tokens[at - 1].kind != "name":
        return None
    parts: list[list[_Token]] = [[]]
    for token in tokens[at + 1 : place - 1]:
        if token.text == ",":
            parts.append([])
        else:
            parts[-1].append(token)
    if [token.text for token in parts[0]] in ([], ["void"]):
        parts = []
    return tokens[at - 1].text, tuple(_parameter(part) for part in parts)


def _parameter(tokens: list[_Token]) -> Parameter:
    words = [token.text for token in tokens]
    names = [word for word in words if word[:1].isalpha() or word[:1] == "_"]
    name = names[-1] if names else ""
    types = [word for word in names[:-1] if word not in _DECLARED] or ["int"]
    text = " ".join(words)
    if "*" in words or "[" in words:
        one = words.count("*") + words.count("[") == 1 and set(types) <= _BYTES
        return Parameter(name, text, "bytes" if one else "other")
    if set(types) & {"float", "double"}:
        return Parameter(name, text, "real")
    sized = re.fullmatch(r"(u?)int(8|16|32|64)_t", types[0])
    if sized is None and not set(types) <= _WHOLE.keys():
        return Parameter(name, text, "other")
    narrow = [_WHOLE[one] for one in types if one in _WHOLE and one != "int"]
    bits = int(sized[2]) if sized else (narrow[0] if narrow else 32)
    positive = bool(sized[1]) if sized else "unsigned" in words or types[0] in ("size_t", "bool", "_Bool")
    return Parameter(name, text, "whole", 0 if positive else -(2 ** (bits - 1)), 2 ** (bits - (not positive)) - 1)


def _constant(token: _Token) -> Any:
    """A text or a number of the file; None for what is neither."""
    if token.kind in ("text", "letter"):
        inner = token.text[1:-1].encode("utf-8", "replace")
        return re.sub(rb"\\(.)", rb"\1", inner) if b"\\x" not in inner and b"\\0" not in inner else None
    if token.kind != "number":
        return None
    plain = token.text.rstrip("uUlL")
    try:
        return int(plain, 8 if re.fullmatch("0[0-7]+", plain) else 0)
    except ValueError:
        pass
    try:
        return float(plain.rstrip("fF"))
    except ValueError:
        return None


class _Body:
    """Reads the statements of a function into parents and guards."""

    def __init__(self, tokens: list[_Token], found: Source) -> None:
        self.tokens, self.found = tokens, found

    def read(self, place: int, end: int, parent: int | None, around: tuple[str, ...], depth: int) -> None:
        """Statements from `place` to `end`."""
        while place < end:
            place = self._statement(place, end, parent, around, depth)

    def _statement(self, place: int, end: int, parent: int | None, around: tuple[str, ...], depth: int) -> int:
        """One statement; the place after it."""
        if depth > DEEPEST:
            raise UserError(f"statements are nested more than {DEEPEST} deep in line {self.tokens[place].line}")
        token = self.tokens[place]
        if token.text == "{":
            after = _closed(self.tokens, place)
            self.read(place + 1, after - 1, parent, around, depth + 1)
            return after
        if token.text == ";":
            return place + 1
        if token.text in ("else", "do"):
            return self._statement(place + 1, end, parent, around, depth + 1)
        line = token.line
        self.found.parents.setdefault(line, parent if parent != line else None)
        self.found.guards.setdefault(line, " ".join(around))
        if token.text in _HEADS and place + 1 < end and self.tokens[place + 1].text == "(":
            return self._branch(place, end, line, around, depth)
        while place < end and self.tokens[place].text != ";":
            if self.tokens[place].text in ("case", "default"):
                while place < end and self.tokens[place].text != ":":
                    place += 1
                return place + 1
            place = _closed(self.tokens, place) if self.tokens[place].text in ("(", "[", "{") else place + 1
        return place + 1

    def _branch(self, place: int, end: int, line: int, around: tuple[str, ...], depth: int) -> int:
        """An ``if`` or a loop, with what follows ``else``."""
        after = _closed(self.tokens, place + 1)
        test = "".join(token.text for token in self.tokens[place + 2 : after - 1])
        kind = self.tokens[place].text
        if kind == "for":
            test = test.split(";")[1] if ";" in test else ""
        inside = (*around, test) if test and kind != "switch" else around
        after = self._statement(after, end, line, inside, depth + 1) if after < end else after
        if kind == "if" and after < end and self.tokens[after].text == "else":
            after = self._statement(after + 1, end, line, (*around, f"not({test})"), depth + 1)
        return after


def shown(functions: Mapping[str, tuple[Parameter, ...]]) -> str:
    """Names of functions, for messages."""
    return ", ".join(functions) or "none"
