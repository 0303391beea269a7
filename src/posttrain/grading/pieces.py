"""Splits completions into parts that are scored by themselves: sentences, sub-sentences, lines, steps, tagged blocks.

Every splitter returns ranges of characters, in order and without overlap, in time linear in the length of the text;
blank parts are left out.
"""

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal

from posttrain.types import IntArray, Trajectory

Range = tuple[int, int]
Split = Literal["sentences", "sub_sentences", "lines", "steps", "episodes", "tags", "whole"]
"""``sentences`` end with . ! ? before white space, or with a line. ``sub_sentences`` (Fine-Grained RLHF) also end after
a word with , ; ! ? if at least 5 words of the sentence remain; one of less than 5 words is joined to a neighbour.
``steps`` end with a line or a semicolon. ``episodes`` (Meta Reinforcement Fine-Tuning, arXiv:2503.07572) begin with a
paragraph that starts with one of `KEYWORDS`, three paragraphs or more after the start of the one before. ``tags`` are
blocks from ``<name>`` to the next ``</name>``, tags included; what is between blocks, or not closed, is no part."""
KEYWORDS: Final = (
    *("wait", "but wait", "alternatively", "is there another way"),
    *("but let me double-check", "but hold on"),
)
"""How a paragraph starts that reconsiders, in lower case."""
FEWEST_PARAGRAPHS: Final = 3
FEWEST_WORDS: Final = 5

_SENTENCE = re.compile(r"[.!?]+(?=\s|\Z)|\n")
_STEP = re.compile(r"[;\n]")
_WORD = re.compile(r"\S+")
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]{0,63})>")


def ranges_of(text: str, split: Split, most: int) -> list[Range]:
    """The parts of a text, at most `most`: the last one has the rest."""
    found = _SPLITTERS[split](text)
    return found if len(found) <= most else [*found[: most - 1], (found[most - 1][0], found[-1][1])]


def tokens_until(token_ids: IntArray, end: int, decode: Callable[[IntArray], str]) -> int:
    """The number of tokens that have the first `end` characters of a text, and what else the last of them has."""
    count = 0
    while count < len(token_ids) and len(decode(token_ids[:count])) < end:
        count += 1
    return count


def with_text(trajectory: Trajectory, text: str) -> Trajectory:
    """The rollout with another completion."""
    place = next(i for i, s in enumerate(trajectory.segments) if s.actor != "prompt")
    segments = [replace(s, text=s.text if s.actor == "prompt" else "") for s in trajectory.segments]
    segments[place] = replace(segments[place], text=text)
    return replace(trajectory, segments=tuple(segments))


def _cut(text: str, mark: re.Pattern[str]) -> list[Range]:
    """The parts that end with a mark, without white space around them."""
    ends = [*(found.end() for found in mark.finditer(text)), len(text)]
    starts = [0, *ends[:-1]]
    return [trimmed for start, end in zip(starts, ends, strict=True) if (trimmed := _trimmed(text, start, end))]


def _trimmed(text: str, start: int, end: int) -> Range | None:
    """The range without white space around it; None for a blank one."""
    part = text[start:end]
    if not part.strip():
        return None
    return start + len(part) - len(part.lstrip()), end - (len(part) - len(part.rstrip()))


def _sentences(text: str) -> list[Range]:
    return _cut(text, _SENTENCE)


def _sub_sentences(text: str) -> list[Range]:
    return [part for start, end in _sentences(text) for part in _within(text, start, end)]


def _within(text: str, start: int, end: int) -> list[Range]:
    """The sub-sentences of a sentence."""
    words = [(start + word.start(), start + word.end()) for word in _WORD.finditer(text[start:end])]
    parts: list[list[Range]] = [[]]
    for number, (first, last) in enumerate(words):
        parts[-1].append((first, last))
        if text[last - 1] in ",;!?" and len(words) - number - 1 >= FEWEST_WORDS:
            parts.append([])
    joined: list[list[Range]] = []
    for part in parts:
        if joined and (len(part) < FEWEST_WORDS or len(joined[-1]) < FEWEST_WORDS):
            joined[-1] += part
        else:
            joined.append(part)
    return [(part[0][0], part[-1][1]) for part in joined]


def _lines(text: str) -> list[Range]:
    return _cut(text, re.compile(r"\n"))


def _steps(text: str) -> list[Range]:
    return _cut(text, _STEP)


def _episodes(text: str) -> list[Range]:
    starts: list[Range] = []
    paragraphs = _cut(text, re.compile(r"\n[ \t]*\n"))
    begun = 0
    for number, (start, end) in enumerate(paragraphs):
        keyword = text[start : start + 32].lower().startswith(KEYWORDS)
        if not starts or (keyword and number - begun >= FEWEST_PARAGRAPHS):
            starts.append((start, end))
            begun = number
        else:
            starts[-1] = (starts[-1][0], end)
    return starts


def _tags(text: str) -> list[Range]:
    tags = [(found.start(), found.end(), found[2], bool(found[1])) for found in _TAG.finditer(text)]
    closed: dict[str, list[int]] = defaultdict(list)
    for _, end, name, closes in tags:
        if closes:
            closed[name].append(end)
    parts: list[Range] = []
    for start, end, name, closes in tags:
        if closes or (parts and start < parts[-1][1]):
            continue
        place = bisect_left(closed[name], end)
        if place < len(closed[name]):
            parts.append((start, closed[name][place]))
    return parts


def _whole(text: str) -> list[Range]:
    trimmed = _trimmed(text, 0, len(text))
    return [trimmed] if trimmed else []


_SPLITTERS: Final[dict[Split, Callable[[str], list[Range]]]] = {
    "sentences": _sentences,
    "sub_sentences": _sub_sentences,
    "lines": _lines,
    "steps": _steps,
    "episodes": _episodes,
    "tags": _tags,
    "whole": _whole,
}
