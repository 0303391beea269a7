r"""Finds the one answer that a completion commits to, in time linear in its length.

Each extractor finds the last non-empty match of its kind:

    answer_tag    <answer>42</answer>; a last <answer> that is not closed counts too, because a stop string is cut off
    boxed         \boxed{42}, braces balanced
    hashes        #### 42, to the end of the line
    phrase        "the answer is 42", "Answer: 42", to the end of the sentence or line
    last_line     the last line that is not blank
    last_number   the last number
    whole         the whole text

If the reference answer has several lines, the answers that `hashes`, `phrase` and `last_line` find may have as many.
Extractors are tried in the given order, and the first match is the answer, so a completion has one answer even if it
lists several. Three rules keep a completion from being rewarded for text that is not its answer. Copies of the prompt
are blanked before the search, so repeating the prompt gives no answer. If the completion was cut at the token limit, a
match that ends at the cut is not an answer, because its end is unknown. And `last_number` is not in the default order,
because it may take a number from the middle of a calculation.

A reference answer may be several that are all right: a list of texts, as the data sets of question answering have.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from posttrain.grading.numbers import NUMBER
from posttrain.types import Message, Task, Trajectory

Lists = Literal["auto", "any", "text"]
"""What a reference answer that is a JSON list stands for. ``auto``: a list of texts (``["4", "four"]``) holds answers
that are each right, any other list (``[1, 2]``) is itself the answer. ``any``: each item is right. ``text``: a list is
always the answer itself."""

Extractor = Literal["answer_tag", "boxed", "hashes", "phrase", "last_line", "last_number", "whole"]
Span = tuple[int, int]

CASCADE: tuple[Extractor, ...] = ("answer_tag", "boxed", "hashes", "phrase", "last_line")
"""The default order: explicit marks, then the last line."""

SHORTEST_ECHO = 12
"""Fewest characters of a prompt whose copies are blanked. An answer may repeat a shorter one ("7 + 5 =")."""

_ANSWER_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE | re.ASCII)
_BRACES = re.compile(r"\\(?:boxed|fbox)\s?\{|\\.|[{}]", re.DOTALL)
_PHRASE = re.compile(r"\banswers?[*_\"' ]{0,3}(?:is|are|[:=])[*_: \n]{0,4}", re.IGNORECASE | re.ASCII)
_EQUALS = re.compile(r"(?<![=<>!:~])=(?![=>])")
_LISTING = re.compile(r"[,;\n]|\b(?:or|and)\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"\n|[.!?](?=\s|\Z)")


@dataclass(frozen=True, slots=True)
class Found:
    """An answer and its position."""

    text: str
    """The answer, without surrounding space."""
    where: Extractor
    start: int
    """Its first character in the completion; with `end`, space included."""
    end: int


def find_answer(trajectory: Trajectory, extractors: Sequence[Extractor], *, gold: str = "") -> Found | None:
    """The answer of a trajectory's completion, or None. `gold` is the reference answer, as `gold_answer` gives it."""
    text = _without_echo(trajectory.completion, trajectory.task, gold)
    return extract(text, extractors, lines=gold.count("\n") + 1, cut=trajectory.stop_reason == "length")


def extract(text: str, extractors: Sequence[Extractor] = CASCADE, *, lines: int = 1, cut: bool = False) -> Found | None:
    """The match of the first extractor that has one. `cut` is whether the text was cut off at its end."""
    for where in extractors:
        span = _FINDERS[where](text, lines)
        if span is None or (cut and text[span[1] :] in ("", ".")):
            continue
        answer = text[span[0] : span[1]].strip()
        if answer:
            return Found(answer, where, *span)
    return None


def gold_answer(answer: str) -> str:
    r"""The answer in a reference answer: the text after ``####`` or in ``\boxed`` if it has them, else all of it."""
    found = extract(answer, ("hashes", "boxed", "whole"))
    return found.text if found else ""


def gold_answers(answer: str, lists: Lists = "auto") -> tuple[str, ...]:
    """The answers of a reference answer that are each right; empty if there is none. `Lists` has the settings."""
    items = None if lists == "text" else json_list(answer)
    if items is None or (lists == "auto" and not all(isinstance(item, str) for item in items)):
        return (gold,) if (gold := gold_answer(answer)) else ()
    texts = (item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in items)
    return tuple(dict.fromkeys(gold for text in texts if (gold := gold_answer(text))))


def json_list(answer: str) -> list[object] | None:
    """The items of a reference answer that is a JSON list of texts, numbers or booleans; None for any other."""
    if not (answer.startswith("[") and answer.endswith("]")):
        return None
    try:
        items = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    return items if items and all(isinstance(item, str | int | float) for item in items) else None


def right_side(text: str) -> str | None:
    """The right side of a text that is one equation, such as ``1 + 5 = 6`` or ``2 * 3 = 1 + 5 = 6``; else None.

    A text with several equations commits to no answer: ``x = 5 or x = 6``.
    """
    sides = _EQUALS.split(text)
    if len(sides) == 1 or any(_LISTING.search(side) for side in sides[1:-1]):
        return None
    return sides[-1].strip() or None


def shown(text: str, limit: int = 60) -> str:
    """A text for an explanation: quoted, in one line, shortened."""
    return repr(text if len(text) <= limit else f"{text[: limit - 3]}...")


def _without_echo(text: str, task: Task, gold: str) -> str:
    """The text with every copy of the prompt replaced by line breaks, so that positions do not change."""
    prompt = [Message(role="user", content=task.prompt)] if isinstance(task.prompt, str) else task.prompt
    for message in prompt:
        echo = message["content"].strip()
        if message["role"] == "assistant":  # an example of an answer, which may be the correct one here too
            continue
        if len(echo) >= SHORTEST_ECHO and echo not in gold:
            text = text.replace(echo, "\n" * len(echo))
    return text


def _answer_tag(text: str, lines: int) -> Span | None:
    opened: int | None = None
    span: Span | None = None
    for tag in _ANSWER_TAG.finditer(text):
        if not tag[1]:
            opened = tag.end()
        elif opened is not None:
            span = (opened, tag.start()) if text[opened : tag.start()].strip() else span
            opened = None
    return (opened, len(text)) if opened is not None and text[opened:].strip() else span


def _boxed(text: str, lines: int) -> Span | None:
    r"""The balanced ``\boxed`` that begins last, so the inner one of nested boxes; one pass with a stack of braces."""
    opened: list[int | None] = []
    span: Span | None = None
    for mark in _BRACES.finditer(text) if "box" in text else ():
        if mark[0] == "{":
            opened.append(None)
        elif mark[0] == "}" and opened:
            start = opened.pop()
            if start is not None and (span is None or start > span[0]):
                span = (start, mark.start())
        elif mark[0].endswith("{") and "box" in mark[0]:
            opened.append(mark.end())
    return span


def _hashes(text: str, lines: int) -> Span | None:
    end = len(text)
    while (mark := text.rfind("####", 0, end)) >= 0:
        stop = text.find("\n", mark, end)
        if text[mark + 4 : stop if stop >= 0 else end].strip():
            return mark + 4, _line_end(text, mark, lines)
        end = max(0, text.rfind("\n", 0, mark))
    return None


def _phrase(text: str, lines: int) -> Span | None:
    for phrase in reversed(list(_PHRASE.finditer(text))):
        end = _SENTENCE_END.search(text, phrase.end())
        span = phrase.end(), end.start() if end else len(text)
        if text[slice(*span)].strip():
            return span if lines == 1 else (phrase.end(), _line_end(text, phrase.end(), lines))
    return None


def _line_end(text: str, start: int, lines: int) -> int:
    """Position of the end of `lines` lines, counted from the line that contains `start`."""
    end = start - 1
    for _ in range(lines):
        end = text.find("\n", end + 1)
        if end < 0:
            return len(text)
    return end


def _last_line(text: str, lines: int) -> Span | None:
    content = len(text.rstrip())
    start = content
    for _ in range(lines):
        start = text.rfind("\n", 0, max(start, 0))
        if start < 0:
            break
    ended = text.find("\n", content) >= 0
    return (start + 1, content if ended else len(text)) if content else None


def _last_number(text: str, lines: int) -> Span | None:
    span: Span | None = None
    for number in NUMBER.finditer(text):
        span = number.span()
    return span


def _whole(text: str, lines: int) -> Span | None:
    return 0, len(text)


_FINDERS: dict[Extractor, Callable[[str, int], Span | None]] = {
    "answer_tag": _answer_tag,
    "boxed": _boxed,
    "hashes": _hashes,
    "phrase": _phrase,
    "last_line": _last_line,
    "last_number": _last_number,
    "whole": _whole,
}
