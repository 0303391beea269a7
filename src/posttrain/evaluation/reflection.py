"""Reflection: how many answers check or reconsider themselves, by the words that they do it with.

Source: Wu et al. 2025, arXiv:2503.20641, section 7: a response is reflective that has one of the words wait,
re-examine, recap, double-check, let me (just) check or verify. There it follows the length of responses, not whether
they are correct.
"""

import re
from collections.abc import Sequence

WORDS = re.compile(r"\b(wait|re-?examine|recap|double-?check|let me (just )?(check|verify))\b", re.IGNORECASE)


def reflective(texts: Sequence[str]) -> float:
    """The share of texts that have one of the words, in [0, 1]; 0 of none."""
    return sum(WORDS.search(text) is not None for text in texts) / max(len(texts), 1)
