"""What a judge's reply says, as a value: a choice, a strength, scores, a ranking, or yes or no; or why nothing.

Papers read replies differently, so each way is a parser, by name:

    first_tag        the text of the first <answer> tag, or the whole reply without one, exactly (arXiv:2503.03318)
    last_letter      the last letter A or B within the last <answer> tag (arXiv:2505.16265)
    strength         a whole number from -3 to 3 but 0 in that tag, negative where A is better (arXiv:2505.16265)
    after_thinking   the letter of the only <answer> tag after </think> (arXiv:2505.11875)
    score_list       "Scores: 3, 5" or "Scores: [3, 5]", as many whole numbers from 1 to 10 as candidates, the last
                     such list (arXiv:2504.02495)
    yes_no           YES or NO, in any case and with nothing else but a full stop (arXiv:2507.08794)
    json_score       the first JSON object with a number ``score`` from 0 to 10 (arXiv:2506.05748)

Differs: the release of arXiv:2505.16265 reads "10" as 1; here it is no strength.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from posttrain.grading.strict_json import BadJSON, read_json

Parser = Literal["first_tag", "last_letter", "strength", "after_thinking", "score_list", "yes_no", "json_score"]
LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

_MARK = re.compile(r"</?answer>")
_LETTER = re.compile(r"(?<![A-Za-z])[AB](?![A-Za-z])")
_LIST = re.compile(r"Scores:\s{0,9}\[?\s{0,9}(-?\d{1,4}(?:\s{0,9},\s{0,9}-?\d{1,4}){0,63})\s{0,9}(?:\]|$|\n)", re.M)
_OBJECT_START = re.compile(r"\{")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a reply says. What its parser does not read is None or empty."""

    text: str
    """The reply."""
    choice: str | None = None
    """The candidate that is preferred: its letter, or the text of the answer tag."""
    strength: int | None = None
    """How much better, from -3 (the first) to 3 (the second)."""
    scores: tuple[float, ...] = ()
    """One for each candidate in the order shown."""
    fault: str = ""
    """Why nothing was read; empty if something was."""


def read_reply(text: str, parser: Parser, candidates: int = 2) -> Reply:
    """What a reply says to a prompt with this many candidates."""
    return PARSERS[parser](text, candidates)


def _unreadable(text: str, fault: str) -> Reply:
    return Reply(text=text, fault=fault)


def _first_tag(text: str, _: int) -> Reply:
    tags = _answers(text)
    choice = (tags[0] if tags else text).strip()
    return Reply(text=text, choice=choice) if choice else _unreadable(text, "the reply is empty")


def _answers(text: str) -> list[str]:
    """The contents of the answer tags that are closed, in time linear in the text."""
    found: list[str] = []
    start: int | None = None
    for mark in _MARK.finditer(text):
        if mark[0] == "<answer>":
            start = mark.end() if start is None else start
        elif start is not None:
            found.append(text[start : mark.start()])
            start = None
    return found


def _last_tag(text: str) -> str | None:
    tags = _answers(text)
    return tags[-1] if tags else None


def _last_letter(text: str, _: int) -> Reply:
    inside = _last_tag(text)
    if inside is None:
        return _unreadable(text, "there is no answer tag")
    letters = _LETTER.findall(inside)
    return Reply(text=text, choice=letters[-1]) if letters else _unreadable(text, "the answer tag has no letter")


def _strength(text: str, _: int) -> Reply:
    inside = _last_tag(text)
    if inside is None:
        return _unreadable(text, "there is no answer tag")
    number = inside.strip()
    if not re.fullmatch(r"[+-]?[1-3]", number):
        return _unreadable(text, "the answer tag has no whole number from -3 to 3 but 0")
    return Reply(text=text, strength=int(number), choice="A" if int(number) < 0 else "B")


def _after_thinking(text: str, _: int) -> Reply:
    _before, thinks, rest = text.rpartition("</think>")
    if not thinks:
        return _unreadable(text, "the thinking does not end" if "<think>" in text else "there is no thinking")
    tags = _answers(rest)
    if len(tags) != 1:
        return _unreadable(text, f"there are {len(tags)} answers after the thinking, where one is a verdict")
    letter = tags[0].strip()
    return Reply(text=text, choice=letter) if letter in ("A", "B") else _unreadable(text, "the answer is no letter")


def _score_list(text: str, candidates: int) -> Reply:
    lists = _LIST.findall(text)
    if not lists:
        return _unreadable(text, "there is no list of scores")
    scores = tuple(float(number) for number in lists[-1].split(","))
    if len(scores) != candidates:
        return _unreadable(text, f"there are {len(scores)} scores for {candidates} candidates")
    if not all(1 <= score <= 10 for score in scores):
        return _unreadable(text, "a score is not from 1 to 10")
    return Reply(text=text, scores=scores)


def _yes_no(text: str, _: int) -> Reply:
    word = text.strip().removesuffix(".").casefold()
    return Reply(text=text, choice=word) if word in ("yes", "no") else _unreadable(text, "it is neither YES nor NO")


def _json_score(text: str, _: int) -> Reply:
    for start in (found.start() for found in _OBJECT_START.finditer(text[:10_000])):
        value = _object_at(text, start)
        score = value.get("score") if value is not None else None
        if isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 10:
            return Reply(text=text, scores=(float(score),))
    return _unreadable(text, "there is no JSON object with a number 'score' from 0 to 10")


def _object_at(text: str, start: int) -> Mapping[str, object] | None:
    """The JSON object that begins at a place; None for anything else, NaN and repeated keys included."""
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
        value = read_json(text[start:end])
    except (BadJSON, ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


PARSERS: Final[Mapping[Parser, Callable[[str, int], Reply]]] = {
    "first_tag": _first_tag,
    "last_letter": _last_letter,
    "strength": _strength,
    "after_thinking": _after_thinking,
    "score_list": _score_list,
    "yes_no": _yes_no,
    "json_score": _json_score,
}
