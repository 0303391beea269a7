"""A checker of derivations: sums that are worked out step by step, from left to right.

    5+8-3      5+8=13; 13-3=10      and then a line with #### 10

A derivation is correct where every step replaces the first two numbers of what is left by their sum or difference, and
the last line has the number that is left. No reference is needed, so that it checks statements that nobody solved.
"""

import re
from typing import Final

_STATEMENT: Final = re.compile(r"\d{1,9}([-+]\d{1,9}){1,31}")
_STEP: Final = re.compile(r"(-?\d{1,12}[-+]\d{1,12})=(-?\d{1,12})")


def is_statement(text: str) -> bool:
    """Whether a text is a sum of two to 32 numbers."""
    return bool(_STATEMENT.fullmatch(text))


def fault(statement: str, derivation: str) -> str:
    """What is wrong with a derivation; empty where it is correct."""
    if not is_statement(statement):
        return "the statement is no sum"
    body, mark, end = derivation.strip().partition("\n#### ")
    if not mark:
        return "has no line with ####"
    left = re.findall(r"[-+]?\d+", statement)
    value = int(left.pop(0))
    for number, step in enumerate(body.split("; "), 1):
        found = _STEP.fullmatch(step.strip())
        if found is None or not left:
            return f"step {number} is no equation" if left else f"step {number} is one too many"
        wanted = f"{value}{left[0] if left[0][0] in '+-' else '+' + left[0]}"
        value += int(left.pop(0))
        if found[1] != wanted or int(found[2]) != value:
            return f"step {number} is not {wanted}={value}"
    if left:
        return f"stops {len(left)} numbers early"
    return "" if end.strip() == str(value) else f"ends with {end.strip()[:20]!r}, not {value}"
