"""The comparison of expressions in a worker, with SymPy's evaluator of text disabled."""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, Never

from posttrain.grading.math_comparison import compare, quiet, refused

_DIGITS_ONLY = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+", re.ASCII)


def open_comparison(argument: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """In a worker: disable SymPy's evaluator of text; returns the comparison."""
    import sympy.parsing.sympy_parser as reader
    from sympy import Integer, Rational

    import posttrain.grading.math_warm

    def refuse(*text: Any, **_: Any) -> Never:
        refused.append(str(text[:1]))
        raise PermissionError("text is not evaluated here")

    def read_number(text: str, *_: Any, **__: Any) -> Any:
        """Replaces SymPy's parser, which is needed only for the digits that the grammar finds."""
        if not _DIGITS_ONLY.fullmatch(text):
            refuse(text)
        return Integer(int(text)) if text.isdigit() else Rational(text)

    assert posttrain.grading.math_warm is not None, "all that is imported on first use must be there by now"
    reader.eval_expr, reader.parse_expr = refuse, read_number
    quiet()
    return lambda call: compare(call["gold"], call["answer"], Fraction(call["tolerance"]))
