r"""Whether two mathematical expressions in LaTeX are equal; for use in a worker that can be killed.

Works with math-verify and latex2sympy2_extended, without their alarms (which do nothing outside the main thread, cancel
the caller's own timer, and do not stop a long computation in C), and without their extraction. A completion is only
parsed by a grammar: `posttrain.grading.math_worker` disables SymPy's own parser of text, which uses Python's `eval`, in
the worker.

Two cases in which they accept unequal expressions are checked here:

    1/3 and 0.333333333      they round to six digits; here numbers must agree to `DIGITS`, or within a tolerance
    5 and "5 or 6"           they take one of several; here both must have as many parts
"""

import contextlib
import logging
import re
from fractions import Fraction
from typing import Any

DIGITS = 40
"""Decimal digits to which two numbers must agree without a tolerance."""
refused: list[str] = []
"""Texts that SymPy wanted to evaluate in this comparison, which `posttrain.grading.math_worker` refused."""

_OPEN, _CLOSE = "([{", ")]}"
_APART = re.compile(r"\\(?:text|textrm|mathrm|mbox)\s?\{\s*(?:or|and)\s*\}|\b(?:or|and)\b|;|\\vee\b|\\cup\b|,")
_GROUPED = re.compile(r"(?<=[0-9])(?:,|\{,\})(?=[0-9]{3}(?![0-9]))")
_TEXT = re.compile(r"\\(?:text|textrm|textbf|mathrm|mbox)\s?\{([^{}]*)\}")
_FUNCTION = re.compile(r"(?<![A-Za-z\\])(?=(?:ln|log|exp|sin|cos|tan|arcsin|arccos|arctan|pi|infty)(?![A-Za-z]))")
_WRAPPED = re.compile(r"\\left|\\right|\\[!,;: ]|\\quad\b|~")


def quiet() -> None:
    """Silence the libraries' warnings about missing time limits; the worker has one."""
    for name in ("math_verify", "latex2sympy2_extended"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def compare(gold: str, answer: str, tolerance: Fraction) -> dict[str, Any]:
    """``{"equal": bool, "why": str}``."""
    if parts(gold) != parts(answer):
        return {"equal": False, "why": f"has {parts(answer)} parts instead of {parts(gold)}"}
    refused.clear()
    expected = _read(gold)
    if expected is None:
        same = _words(gold) == _words(answer)
        return {"equal": same, "why": "compared as text, because the reference answer is no mathematics"}
    given = _read(answer)
    if given is None:
        return {"equal": False, "why": "cannot be read as mathematics"}
    from math_verify import verify

    if _is_number(expected) and _is_number(given):
        return {"equal": _near(expected, given, tolerance), "why": "compared as numbers"}
    equal = verify(expected, given, timeout_seconds=None, raise_on_error=True, strict=True)
    if refused:  # math-verify takes what SymPy raises for "not equal"
        raise PermissionError(f"SymPy wanted to evaluate {refused[0]}")
    return {"equal": bool(equal), "why": "compared by math-verify"}


def parts(text: str) -> int:
    """Number of parts of an answer, separated by commas, semicolons, "or" and "and" outside of inner brackets."""
    text = _WRAPPED.sub(" ", _GROUPED.sub("", text)).strip()
    depth, count, lowest = 0, 1, 1
    marks = {match.start() for match in _APART.finditer(text)}
    outer = bool(text) and text[0] in "([{\\" and text[-1] in ")]}"
    for index, character in enumerate(text):
        depth += (character in _OPEN) - (character in _CLOSE)
        if index in marks and depth <= (lowest if outer else 0):
            count += 1
    return count


def _read(text: str) -> Any:
    """The expression of a text; None if the grammar does not accept it."""
    from latex2sympy2_extended import NormalizationConfig, latex2sympy
    from sympy import Basic, Float, Rational
    from sympy.matrices import MatrixBase

    if not any(mark in text for mark in _OPEN):
        text = _GROUPED.sub("", text)
    text = _FUNCTION.sub(r"\\", text)
    normal = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=True, equations=False)
    try:
        found = latex2sympy(text, normalization_config=normal)
    except (MemoryError, PermissionError):
        raise
    except Exception:  # on model output the grammar and SymPy's constructors may raise anything
        return None
    if not isinstance(found, Basic | MatrixBase):
        return None
    with contextlib.suppress(AttributeError, TypeError):
        exact = {number: Rational(str(number)) for number in found.atoms(Float)}
        found = found.xreplace(exact) if exact else found
    return found


def _words(text: str) -> str:
    return " ".join(_TEXT.sub(r"\1", text).split()).casefold()


def _is_number(expression: Any) -> bool:
    from sympy import Expr

    return isinstance(expression, Expr) and not expression.free_symbols and bool(expression.is_number)


def _near(gold: Any, answer: Any, tolerance: Fraction) -> bool:
    """Whether two numbers agree to `DIGITS` digits or differ by at most the tolerance."""
    if gold == answer:
        return True
    from sympy import Abs, N, Rational

    gold, answer = gold.doit(), answer.doit()  # integrals and sums, which are slow to approximate
    gap, size = N(Abs(gold - answer), DIGITS + 10, maxn=200), N(Abs(gold), 15, maxn=200)
    if not (gap.is_comparable and size.is_comparable):
        return False
    allowed = Rational(tolerance.numerator, tolerance.denominator) + (size or 1) * Rational(1, 10**DIGITS)
    return bool(gap <= allowed)
