"""Reads which mode a completion has chosen: to think first, or to answer at once.

The form is ``<judge>two numbers, think off</judge>`` and the answer, or ``<judge>five numbers, think on</judge>``, then
``<think>...</think>`` and the answer (KAT-V1, arXiv:2507.08297).
"""

import re
from typing import Final, Literal

Mode = Literal["on", "off"]
TAG: Final = "judge"
THOUGHTS: Final = "think"
_JUDGE = re.compile(rf"\A\s*<{TAG}>((?:(?!</?{TAG}>)[\s\S])*)</{TAG}>")
_CHOICE = re.compile(r"\bthink (on|off)\s*\Z")


def mode_of(text: str) -> Mode:
    """The mode that is chosen at the start of a completion; one without a clear choice counts as thinking."""
    opening = _JUDGE.match(text)
    choice = _CHOICE.search(opening[1]) if opening else None
    return "off" if choice is not None and choice[1] == "off" else "on"


def is_formed(text: str) -> bool:
    """Whether the choice is made once, and thoughts follow it exactly where it is to think."""
    opening = _JUDGE.match(text)
    choice = _CHOICE.search(opening[1]) if opening else None
    if opening is None or choice is None:
        return False
    rest = text[opening.end() :]
    if f"<{TAG}>" in rest or f"</{TAG}>" in rest:
        return False
    opened, closed = rest.count(f"<{THOUGHTS}>"), rest.count(f"</{THOUGHTS}>")
    if choice[1] == "off":
        return not opened and not closed
    return opened == closed == 1 and re.match(rf"\s*<{THOUGHTS}>\s*\S[\s\S]*</{THOUGHTS}>\s*\S", rest) is not None
