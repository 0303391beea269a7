r"""A fact in two sources of which one may lie: search, search again, see which one is official, and answer.

    <search>A</search>      what source A has; the first search may find nothing
    <scripts>who</scripts>  which source is official, and never lies
    <plan>...</plan>        nothing happens
    <summary>...</summary>  replaces all that was written before (`rollouts/summarized`)
    <answer>7</answer>      ends the episode

A turn is one pair of these tags after an optional thought in ``<think>``; ``summary`` is the whole turn. Two pairs, an
unpaired tag, or ``<information>`` written by the model are invalid: the turn is lost, and a reminder follows. The
digit, the source that may lie, whether it does, and what is not found at first are drawn by the task's key. The result
is 1 for the right answer, and 0 at the limit of turns. The regret is what it misses of the optimum, the chance of the
right answer in the best play within the limit (`optimum`); a lucky guess has a regret below 0.

Four behaviours are measured by rule: verification (both sources were seen before the answer), authority (the official
one was looked up), adaptive search (a search after one that found nothing), error recovery (something else than an
answer right after the sources disagreed).

Source: the environment and the four tags of Behavior Priming, arXiv:2510.06534. There pages of the web, and a language
model that scores behaviours and answers.
"""

import re
import zlib
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task

TAGS: Final = ("search", "answer", "plan", "scripts", "summary")
REMINDER: Final = "One action in tags."
BEHAVIOURS: Final = ("verification", "authority", "adaptive", "recovery")


@frozen
class Sources(Environment):
    """One fact per task."""

    lie: Annotated[float, Field(ge=0.0, le=1.0)] = 0.4
    """Chance that the source that is not official has another digit."""
    empty: Annotated[float, Field(ge=0.0, le=1.0)] = 0.3
    """Chance that the first search in a source finds nothing."""
    horizon: PositiveInt = 8
    """Turns after which the episode ends."""
    player: Literal["careful", "careful_wrong", "hasty", "random"] = "careful"
    """The environment's own player: all four behaviours where they apply, the same with a wrong answer at the end, the
    first digit that is found, or any action."""

    @property
    def stop(self) -> tuple[str, ...]:
        """The ends of actions."""
        return tuple(f"</{tag}>" for tag in TAGS)

    def instance(self, task: Task, draw: Draw) -> Instance:
        """The fact of the task. Only the random player draws."""
        return Inquiry(self, Random(zlib.crc32(f"sources:{task.key}".encode())), draw)


class Inquiry(Instance):
    """One episode."""

    def __init__(self, rules: Sources, rng: Random, draw: Draw) -> None:
        self._rules, self._draw = rules, draw
        self.digit, self.official = rng.randrange(10), rng.choice("AB")
        other = (self.digit + rng.randint(1, 9)) % 10 if rng.random() < rules.lie else self.digit
        self.digits = {name: self.digit if name == self.official else other for name in "AB"}
        self._hidden = {name: rng.random() < rules.empty for name in "AB"}
        self.searched = {"A": 0, "B": 0}
        self.asked, self._turns, self._calls, self._given = False, 0, 0, ""
        self._behaviours: set[str] = set()

    def begin(self) -> Observation:
        """Nothing is known."""
        return self._observation("")

    def found(self, name: str) -> int | None:
        """The digit of a source, as far as it was found."""
        return self.digits[name] if self.searched[name] > self._hidden[name] else None

    def nothing(self, name: str) -> bool:
        """Whether a search has found nothing yet."""
        return self.searched[name] == 1 and self._hidden[name]

    @property
    def disagree(self) -> bool:
        """Whether both digits are found and differ."""
        return None not in (self.found("A"), self.found("B")) and self.found("A") != self.found("B")

    async def step(self, action: str) -> Outcome:
        """Perform the action of a turn."""
        self._turns += 1
        read = action_of(action)
        tag, body = read or ("", "")
        if self.disagree and read and tag != "answer":
            self._behaviours.add("recovery")
        text, valid = REMINDER, read is not None
        if tag == "search" and body in self.digits:
            text, self._calls = self._search(body), self._calls + 1
        elif tag == "scripts" and body == "who":
            self.asked, text, self._calls = True, f"official {self.official}", self._calls + 1
            self._behaviours.add("authority")
        elif tag in ("plan", "summary"):
            text = "ok"
        elif tag == "answer":
            self._given, text = body, ""
            if None not in (self.found("A"), self.found("B")):
                self._behaviours.add("verification")
        else:
            valid = False
        done = tag == "answer" or self._turns >= self._rules.horizon
        return Outcome(observation=self._observation(text), done=done, valid=valid)

    async def solution(self) -> str:
        """The next turn of the environment's own player."""
        kind = self._rules.player
        if kind == "random":
            return self._options[min(int(self._draw() * len(self._options)), len(self._options) - 1)]
        if kind == "hasty":
            known = next((digit for name in "AB" if (digit := self.found(name)) is not None), None)
            missing = next((name for name in "AB" if not self.searched[name]), "A")
            return f"<search>{missing}</search>" if known is None else f"<answer>{known}</answer>"
        for name in "AB":
            if self.found(name) is None:
                return f"<search>{name}</search>"
        if not self.asked:
            return "<scripts>who</scripts>"
        right = self.digits[self.official]
        return f"<answer>{right if kind == 'careful' else (right + 1 + self._turns) % 10}</answer>"

    def verdict(self) -> Verdict:
        """1 for the right digit."""
        solved = self._right
        return Verdict(value=float(solved), solved=solved, explanation=f"{self._given or 'nothing'} was answered")

    def measures(self) -> Mapping[str, float]:
        """The four behaviours, 0 or 1, searches and look-ups, and the regret."""
        rules = self._rules
        own = {
            "calls": float(self._calls),
            "regret": optimum(rules.lie, rules.empty, rules.horizon) - float(self._right),
        }
        return {**{name: float(name in self._behaviours) for name in BEHAVIOURS}, **own}

    @property
    def _right(self) -> bool:
        return self._given.strip() == str(self.digit)

    @property
    def _options(self) -> tuple[str, ...]:
        known = [str(digit) for name in "AB" if (digit := self.found(name)) is not None] or ["0"]
        searches = tuple(f"<search>{name}</search>" for name in "AB")
        return (*searches, "<scripts>who</scripts>", *(f"<answer>{digit}</answer>" for digit in known))

    def _search(self, name: str) -> str:
        if any(self.nothing(other) for other in "AB"):
            self._behaviours.add("adaptive")
        self.searched[name] += 1
        digit = self.found(name)
        return f"{name} nothing" if digit is None else f"{name} {digit}"

    def _observation(self, text: str) -> Observation:
        known = [self.found("A"), self.found("B"), self.official if self.asked else None]
        return Observation(text=f"\n{text}\n", state_key=f"{text} {known}", legal=self._options)


@cache
def optimum(lie: float, empty: float, turns: int, seen: tuple[str, str] = ("new", "new"), asked: bool = False) -> float:
    """The chance of the right answer in the best play of some turns: a search over searches, look-ups and answers.

    `seen` is what is known of either source: ``new``, ``nothing`` or ``found``. Without a look-up the sources are
    alike; after one the first is the official one. Where both are found, they agree or not with a chance.
    """
    if turns < 1:
        return 0.0
    found = tuple(state == "found" for state in seen)
    if asked and found[0]:
        return 1.0
    if all(found):  # where they agree they are right; where not, a guess, or a look-up
        return (1 - lie) + lie * (1.0 if turns > 1 else 0.5)
    best = (max(1 - lie, lie / 9) if asked else 1 - lie / 2) if any(found) else 0.1
    if not asked:
        official_first = optimum(lie, empty, turns - 1, seen, True)
        official_second = optimum(lie, empty, turns - 1, (seen[1], seen[0]), True)
        best = max(best, (official_first + official_second) / 2)
    for place in (0, 1):
        if not found[place]:
            best = max(best, _searched(lie, empty, turns - 1, seen, asked, place))
    return best


def _searched(lie: float, empty: float, turns: int, seen: tuple[str, str], asked: bool, place: int) -> float:
    """The optimum after a search in a source."""

    def after(state: str) -> float:
        states = (state, seen[1]) if place == 0 else (seen[0], state)
        return optimum(lie, empty, turns, states, asked)

    return after("found") if seen[place] == "nothing" else (1 - empty) * after("found") + empty * after("nothing")


def action_of(text: str) -> tuple[str, str] | None:
    """Tag and body of the one action of a turn; None where there is none, several, or a tag that is not the model's."""
    rest = re.sub(r"^\s*<think>.*?</think>", "", text, count=1, flags=re.DOTALL)
    names = "|".join(TAGS)
    pairs = re.findall(rf"<({names})>(.*?)</\1>", rest, re.DOTALL)
    marks = re.findall(rf"</?(?:{names})>", rest)
    if len(pairs) != 1 or len(marks) != 2 or "<information>" in text:
        return None
    tag, body = pairs[0]
    if tag == "summary" and not re.fullmatch(r"\s*<summary>.*</summary>\s*", rest, re.DOTALL):
        return None
    return tag, body.strip()
