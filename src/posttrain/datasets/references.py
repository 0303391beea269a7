"""The text in which a reward model compares a candidate with a reference answer: the prompt twice, the reference first.

Source: POLAR, arXiv:2507.05197, and its release:

    prompt [line] reference <sep> prompt [line] candidate <end>

Too long, reference and candidate keep their first characters, and then the prompt its last ones, as many in both
places. Of a pair the longer candidate decides, so that both are read after the same text.

Differs: limits are in characters, since a pair is made before a tokenizer is known; the release has 4,096 tokens for an
answer and 16,384 for all.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

SEPARATOR = "\n###\n"
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Compared:
    """What stands before a candidate, and the candidates as they are read."""

    before: str
    candidates: tuple[str, ...]
    cut: bool = False
    """Whether any part is shorter than it was."""


def compared(
    prompt: str,
    reference: str,
    candidates: Sequence[str],
    *,
    line: str = "\n",
    separator: str = SEPARATOR,
    longest_answer: int = 4096,
    longest: int = 16384,
) -> Compared:
    """The text of one comparison or, for several candidates, the same text for all of them."""
    shorter = any(len(text) > longest_answer for text in (reference, *candidates))
    reference, cut = reference[:longest_answer], tuple(text[:longest_answer] for text in candidates)
    used = len(reference) + max(map(len, cut)) + 2 * len(line) + len(separator)
    room = max(0, (longest - used) // 2)
    shown = prompt[len(prompt) - room :] if len(prompt) > room else prompt
    shorter = shorter or len(prompt) > room
    return Compared(f"{shown}{line}{reference}{separator}{shown}{line}", cut, shorter)


def without_thoughts(text: str) -> str:
    """A completion without the block of thoughts that it begins with."""
    return _THOUGHTS.sub("", text, count=1) if text.lstrip().startswith("<think>") and "</think>" in text else text
