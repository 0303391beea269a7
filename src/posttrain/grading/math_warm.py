"""Imported in the process that workers for mathematics are forked from: triggers all imports on first use.

Then a new worker compares at once, and nothing has to be imported after SymPy's parser of text was disabled.
"""

import importlib.util
from fractions import Fraction

from posttrain.grading.math_comparison import compare, quiet

PAIRS = (
    (r"\sqrt{2}", r"\frac{2}{\sqrt{2}}"),
    ("x^2+2x+1", "(x+1)^2"),
    (r"\sin^2 x + \cos^2 x", r"\log(10) \cdot x!"),
    (r"\{1, 2\}", r"\{2, 1\}"),
    ("[0, 1)", r"(-\infty, 1] \cup [2, 3)"),
    ("x < 3", r"2x \leq 6"),
    ("x + y = 1", "y = 1 - x"),
    ("1 + 2i", "2i + 1"),
    (r"\begin{pmatrix} 1 & 2 \end{pmatrix}", r"\begin{pmatrix} 1 & x \end{pmatrix}"),
    (r"\int_0^1 x dx", r"\frac{1}{2}"),
    (r"\binom{4}{2}", "6"),
    (r"\text{east}", r"\text{west}"),
)


def warm() -> None:
    """Compare one pair of each kind of expression."""
    quiet()
    for gold, answer in PAIRS:
        compare(gold, answer, Fraction(0))


if importlib.util.find_spec("math_verify") is not None:
    warm()
