r"""Reads numbers exactly, as fractions, and compares them.

Read are 42, -3.50, .5, 1,234,567 (commas only between groups of three), 3/4, \frac{3}{4}, 1.2e-5, with a currency sign
before or after, a percent sign, a degree sign or up to three words of unit after, an unknown before (``x = 5``), and
LaTeX spacing and ``\text{...}`` around any of them. Not read are other digits than 0-9, lists and ranges ("5 or 6"),
mixed numbers, a number times an unknown (``5x``), and anything longer than `LONGEST` characters or with an exponent
beyond `LARGEST_EXPONENT` (the work would grow with the value of the number, not with the length of the text).

Units: currency, percent and degree signs are ignored, so 50% is 50 and not 0.5. A unit in words that the reference
answer has must be in the answer too; one that only the answer has is ignored.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

LONGEST = 1000
"""Most characters of a number."""
LARGEST_EXPONENT = 1000

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"

NUMBER = re.compile(rf"(?<![\w.])[+-]?(?:{_DIGITS}(?:\.[0-9]+)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?(?:/[0-9]+)?", re.ASCII)
"""A bare number within a text."""

_WORD = r"[A-Za-z][A-Za-z/'-]{0,19}(?:\^?[23²³])?"
_QUANTITY = re.compile(
    rf"""
    (?:[A-Za-z][A-Za-z0-9_]{{0,15}}\s?=\s?)?           # an unknown: x =
    (?P<sign>[+-]?)\s?[$€£¥]?\s?(?P<inner_sign>[+-]?)
    (?P<whole>{_DIGITS})?(?:\.(?P<decimals>[0-9]*))?
    (?:[eE](?P<exponent>[+-]?[0-9]{{1,9}}))?
    (?:\s?/\s?(?P<denominator>[0-9]+))?
    \s?(?:[%$€£¥°]|(?P<unit>{_WORD}(?:\s{_WORD}){{0,2}}))?
    """,
    re.VERBOSE | re.ASCII,
)

_UNKNOWNS = ("x", "y", "z", "n", "k", "i")
"""Letters that after a number are a factor, not a unit: 42x is not 42."""

_LATEX = (
    ("−", "-"),
    ("{,}", ","),
    (r"\!", ""),
    (r"\,", " "),
    (r"\;", " "),
    (r"\ ", " "),
    ("~", " "),
    (r"\$", "$"),
    (r"\%", "%"),
    (r"^{\circ}", "°"),
    (r"^\circ", "°"),
    (r"\dfrac", r"\frac"),
    (r"\tfrac", r"\frac"),
)
_FRACTION = re.compile(r"(?<![0-9 ])\\frac\s?(?:\{([+-]?[0-9]+)\}|([0-9]))\s?(?:\{([0-9]+)\}|([0-9]))")
_TEXT = re.compile(r"\\(?:text|textrm|textbf|mathrm|mbox)\s?\{([^{}]*)\}")
_WRAPPING = "*_`\"'“”‘’$ \t\n"


@dataclass(frozen=True, slots=True)
class Number:
    """A number and the words after it."""

    value: Fraction
    unit: str = ""


def unwrapped(text: str) -> str:
    r"""The text without marks around an answer: quotes, Markdown emphasis, ``$``, a full stop, the brackets of ``(B)``.

    A text of such marks only is returned as is.
    """
    inner = text.strip().removeprefix(r"\(").removesuffix(r"\)").strip(_WRAPPING)
    inner = inner.removesuffix(".").rstrip(_WRAPPING)
    if len(inner) == 3 and inner[0] == "(" and inner[2] == ")":
        inner = inner[1]
    return inner or text


def read_number(text: str) -> Number | None:
    """The number that a text consists of, or None."""
    if len(text) > LONGEST:
        return None
    for written, meant in _LATEX:
        text = text.replace(written, meant)
    text = _TEXT.sub(r" \1", _FRACTION.sub(r"\1\2/\3\4", text))
    matched = _QUANTITY.fullmatch(" ".join(unwrapped(text).split()))
    if not matched or not (matched["whole"] or matched["decimals"]) or (matched["sign"] and matched["inner_sign"]):
        return None
    if (matched["unit"] or "") in _UNKNOWNS:
        return None
    value = _value(matched)
    return None if value is None else Number(value, (matched["unit"] or "").lower())


def _value(matched: re.Match[str]) -> Fraction | None:
    exponent = int(matched["exponent"] or 0)
    denominator = int(matched["denominator"] or 1)
    if abs(exponent) > LARGEST_EXPONENT or denominator == 0:
        return None
    whole = (matched["whole"] or "0").replace(",", "")
    decimals = matched["decimals"] or ""
    value = Fraction(int(whole + decimals), denominator) * Fraction(10) ** (exponent - len(decimals))
    return -value if "-" in (matched["sign"], matched["inner_sign"]) else value


def same_number(answer: Number, gold: Number, tolerance: Fraction) -> bool:
    """Whether an answer equals the reference number within a tolerance, and has its unit."""
    return abs(answer.value - gold.value) <= tolerance and (not gold.unit or answer.unit == gold.unit)
