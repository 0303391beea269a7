"""Exact arithmetic on text: expressions of whole numbers with + - * / and brackets, evaluated without `eval`.

The functions take any text and never raise. There is no recursion. Time is linear in the length of the text, which is
limited, so a completion cannot stall the grader.
"""

import re
from fractions import Fraction
from typing import NamedTuple

MAX_LENGTH = 500
"""Largest number of characters of an expression."""

_TOKEN = re.compile(r"\s*([0-9]+|[-+*/()])")
_SAME = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-"})
_BINDING = {"(": 0, "+": 1, "-": 1, "*": 2, "/": 2, "negate": 3}
"""Precedence of operators; an open bracket has the lowest."""


class Operation(NamedTuple):
    """One operation on two values, and its result."""

    left: Fraction
    operator: str
    right: Fraction
    result: Fraction


def evaluate(text: str) -> Fraction | None:
    """The exact value; None for text that is no expression, and for a division by zero."""
    found = _run(text)
    return None if found is None else found[0]


def operations(text: str) -> "list[Operation] | None":
    """The operations on two values, in the order in which they are done; None where `evaluate` gives None."""
    found = _run(text)
    return None if found is None else found[1]


def numbers_used(text: str) -> list[int] | None:
    """The whole numbers in an expression, in order; None for text that is no expression."""
    postfix = _postfix(text)
    return None if postfix is None else [token for token in postfix if isinstance(token, int)]


def _run(text: str) -> "tuple[Fraction, list[Operation]] | None":
    """The value of an expression and its operations."""
    postfix = _postfix(text)
    if postfix is None:
        return None
    values: list[Fraction] = []
    done = []
    for token in postfix:
        if isinstance(token, int):
            values.append(Fraction(token))
        elif token == "negate":
            values.append(-values.pop())
        else:
            right, left = values.pop(), values.pop()
            if token == "/" and right == 0:
                return None
            values.append(_apply(token, left, right))
            done.append(Operation(left, token, right, values[-1]))
    return values[0], done


def _apply(operator: str, left: Fraction, right: Fraction) -> Fraction:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    return left * right if operator == "*" else left / right


def _tokens(text: str) -> list[str] | None:
    """Numbers, operators and brackets; None if there is anything else."""
    if not isinstance(text, str) or len(text) > MAX_LENGTH:
        return None
    text = text.translate(_SAME).rstrip()
    tokens, position = [], 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            return None
        tokens.append(found[1])
        position = found.end()
    return tokens


def _postfix(text: str) -> list[int | str] | None:
    """Tokens in postfix order (Dijkstra's shunting-yard algorithm); None for text that is no expression."""
    output: list[int | str] = []
    waiting: list[str] = []
    open_brackets = 0
    want_operand = True
    for token in _tokens(text) or ():
        if (token == "(" or token.isdigit() or token == "-") and want_operand:
            want_operand = not token.isdigit()
            open_brackets += token == "("
            if token.isdigit():
                output.append(int(token))
            else:
                waiting.append("negate" if token == "-" else token)
        elif want_operand or token == "(" or token.isdigit() or (token == ")" and not open_brackets):
            return None
        elif token == ")":
            open_brackets -= 1
            while (top := waiting.pop()) != "(":
                output.append(top)
        else:
            while waiting and _BINDING[waiting[-1]] >= _BINDING[token]:
                output.append(waiting.pop())
            waiting.append(token)
            want_operand = True
    if want_operand or open_brackets:
        return None
    return [*output, *reversed(waiting)]
