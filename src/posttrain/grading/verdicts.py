"""The format of a verifier's output: a mark for each step of a solution, and one for its result.

     47+35=82 -; 92-8=84 +
    #### -

The marks before a semicolon or the end of the line, ``+`` for correct and ``-`` for incorrect, are those of the
steps in order. Any text may precede a mark, for example the verifier's own calculation, which may contain semicolons.
The mark after ``####`` is that of the result.
"""

import re
from dataclasses import dataclass

MARKS = {True: "+", False: "-"}
_MARK = re.compile(r"\s([+-])\s*$")
_VERIFICATION = re.compile(r"([^\n#]*)\n#### ([+-])\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """The verdicts of a verifier on a solution."""

    steps: tuple[bool, ...]
    """Whether each step is correct, by the verifier."""
    result: bool
    """Whether the result is correct, by the verifier."""


def read_verdicts(text: str, steps: int) -> Verdicts | None:
    """The verdicts on a solution of `steps` steps; None for text in another format."""
    found = _VERIFICATION.fullmatch(text)
    if found is None:
        return None
    marks = [mark[1] for part in found[1].split(";") if (mark := _MARK.search(part))]
    return Verdicts(steps=tuple(mark == "+" for mark in marks), result=found[2] == "+") if len(marks) == steps else None


def steps_of(solution: str, separator: str = ";") -> list[str]:
    """The steps of a solution. Each but the last ends with the separator; the last has the result."""
    first, *rest = solution.split(separator)
    steps = [first]
    for part in rest:
        steps[-1] += separator
        steps.append(part)
    if len(steps) > 1 and not steps[-1].strip():
        steps[-2:] = [steps[-2] + steps[-1]]
    return steps
