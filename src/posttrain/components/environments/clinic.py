"""A patient to be asked about symptoms and then diagnosed, within a budget of turns.

There are `diseases` with `symptoms` yes-no symptoms each, a fixed table. The task's key draws the disease. A reply is
one ``<answer>...</answer>`` with a question (``s7?``) or with ``Diagnosis: d12. Recommendation: r12``. The checks of a
reply, in this order, with the rewards of `process` ``answered``:

    1 a broken format: -2, and the dialogue goes on, also beyond the budget
    2 the word Diagnosis: with a colon the terminal score, and the end; without one nothing at all
    3 the budget is used up: -5, and the end
    4 not exactly one question mark: -2
    5 a question that was asked before: -2
    6 an answer: +1; a question that the patient cannot answer: -1

The terminal score is 0 to 5 each for diagnosis and recommendation: 5 for the right word (`exact`), or 5 LCS / longer
length over characters (`overlap`).

Source: DoctorAgent-RL, arXiv:2505.19630, and its released environment: the order of the checks, the rewards, a budget
that is drawn from 2 to 10.

The optimum is the highest expected return of a doctor who has the table, by search over all questions (`optimum`);
the regret is what an episode misses of it. A lucky guess among several diseases has a regret below 0. Where the search
would be long, regret is not measured.

Differs: patient and judge are rules, not language models. `gain` replaces the +1 by the information in bits, which is
not in the paper: with +1, asking on has a higher return than a quick right diagnosis.
"""

import math
import re
import zlib
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Annotated, Final, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Draw, Environment, Instance, Observation, Outcome, Verdict
from posttrain.types import Task

MOST: Final = 5.0
"""Best score of a diagnosis, and of a recommendation."""
SHORTEST, LONGEST = 2, 10
"""Budgets that are drawn."""
LARGEST: Final = 600_000
"""Sets of answers up to which the optimum is searched for."""
Process = Literal["none", "answered", "gain"]
_REPLY: Final = re.compile(r"(?:(?!</?answer>).)*<answer>((?:(?!</?answer>).)*)</answer>\s*", re.DOTALL)


@frozen
class Clinic(Environment):
    """Answers a doctor's questions."""

    diseases: Annotated[int, Field(ge=1, le=1000)] = 30
    """Number of diseases."""
    symptoms: Annotated[int, Field(ge=1, le=1000)] = 12
    """Number of symptoms, each present in about half of the diseases."""
    budget: PositiveInt | None = None
    """Turns until a diagnosis is due; None draws 2 to 10 for each rollout."""
    process: Process = "none"
    """Rewards of turns besides the terminal score: none, those above, or those above with information for the +1."""
    repeated: NonNegativeFloat = 2.0
    """Subtracted for a question that was asked before, where turns have rewards."""
    match: Literal["exact", "overlap"] = "exact"
    """How diagnosis and recommendation are compared."""

    def instance(self, task: Task, draw: Draw) -> Instance:
        """A patient with the disease of the task."""
        disease = zlib.crc32(f"clinic:{task.key}".encode()) % self.diseases
        budget = self.budget or SHORTEST + int(draw() * (LONGEST - SHORTEST + 1))
        return Consultation(self, disease, budget)


@cache
def table(diseases: int, symptoms: int) -> tuple[tuple[bool, ...], ...]:
    """[diseases, symptoms] which symptoms each disease has; no two diseases are equal where that is possible."""
    rng, rows = Random(f"clinic:{diseases}:{symptoms}"), dict[tuple[bool, ...], None]()
    for _ in range(100 * diseases):
        rows[tuple(rng.random() < 0.5 for _ in range(symptoms))] = None
        if len(rows) == diseases:
            break
    found = list(rows)
    return tuple(found[place % len(found)] for place in range(diseases))


@cache
def optimum(diseases: int, symptoms: int, budget: int, process: Process, match: str) -> float | None:
    """The highest expected return within a budget of turns; None where there are more than `LARGEST` sets of answers.

    A set of diseases that is not asked about any further is named by what fits them best on average, which is the name
    of one of them. Of any questions the answers are the same in every order, so sets are searched once.
    """
    rows, questions = table(diseases, symptoms), min(budget - 1, symptoms)
    if sum(math.comb(symptoms, depth) * 2**depth for depth in range(questions + 1)) > LARGEST:
        return None
    having = [sum(1 << d for d, row in enumerate(rows) if row[s]) for s in range(symptoms)]

    scores = [[2 * MOST * alike(f"d{name}", f"d{d}", match) for d in range(diseases)] for name in range(diseases)]
    gain = float(process == "gain")

    def named(left: int) -> float:
        """The sum of returns over the diseases of a set, if one is named now."""
        own = [d for d in range(diseases) if left >> d & 1]
        names = own if match == "exact" else range(diseases)
        bits = gain * len(own) * math.log2(diseases / len(own))
        return bits + max(sum(scores[name][d] for d in own) for name in names)

    def most(own: int, turns: int) -> float:
        """A bound on `best` for a set of this size: a question halves it, and has one bit, at best."""
        right = min(own, 2**turns) if match == "exact" else own
        bits = min(math.log2(diseases), math.log2(diseases / own) + turns)
        return 2 * MOST * right + gain * own * bits

    @cache
    def best(left: int, turns: int) -> float:
        found, own = named(left), left.bit_count()
        halves = {(left & had, left & ~had) for had in having} if turns and own > 1 else set()
        for yes, no in sorted(halves, key=lambda pair: (abs(pair[0].bit_count() - pair[1].bit_count()), pair)):
            sizes = yes.bit_count(), no.bit_count()
            if all(sizes) and sum(most(size, turns - 1) for size in sizes) > found:
                found = max(found, best(yes, turns - 1) + best(no, turns - 1))
        return found

    given = questions if process == "answered" else 0
    return given + best((1 << diseases) - 1, questions) / diseases


class Consultation(Instance):
    """One dialogue."""

    def __init__(self, rules: Clinic, disease: int, budget: int) -> None:
        self._rules, self._disease, self._budget = rules, disease, budget
        self._table = table(rules.diseases, rules.symptoms)
        self._known: dict[int, bool] = {}
        self._turn, self._repeats, self._score, self._rewarded = 0, 0, 0.0, 0.0

    def begin(self) -> Observation:
        """The patient's complaint has no information."""
        return self._observation("I am ill.", counted=False)

    async def step(self, action: str) -> Outcome:
        """Check a reply, in the order above."""
        self._turn += 1
        matched = _REPLY.fullmatch(action)
        if matched is None:
            return self._outcome("Pardon?", -2.0, valid=False)
        text = matched[1]
        if "Diagnosis" in text:
            if "Diagnosis:" not in text:
                return Outcome(observation=self._observation("", counted=False), valid=False)
            self._score = self._scored(text)
            return Outcome(observation=self._observation("Thank you."), done=True)
        if self._turn >= self._budget:
            return self._outcome("Goodbye.", -5.0, done=True)
        if text.count("?") + text.count("\uff1f") != 1:
            return self._outcome("One question, please.", -2.0, valid=False)
        return self._answered(text)

    def _answered(self, text: str) -> Outcome:
        found = re.search(r"\bs(\d{1,4})\b", text)
        symptom = int(found[1]) if found else -1
        if symptom in self._known:
            self._repeats += 1
            return self._outcome("You asked that.", -self._rules.repeated)
        if not 0 <= symptom < self._rules.symptoms:
            return self._outcome("Sorry, I do not know.", -1.0)
        before = len(self.candidates)
        self._known[symptom] = self._table[self._disease][symptom]
        bits = math.log2(before / len(self.candidates))
        return self._outcome("Yes." if self._known[symptom] else "No.", bits if self._rules.process == "gain" else 1.0)

    @property
    def candidates(self) -> list[int]:
        """Diseases that fit the answers so far."""
        return [d for d, row in enumerate(self._table) if all(row[s] == had for s, had in self._known.items())]

    async def solution(self) -> str:
        """The question that halves the candidates best, or the first candidate if it is the only one or time is up."""
        left = self.candidates
        new = [s for s in range(self._rules.symptoms) if s not in self._known]
        if len(left) == 1 or not new or self._turn + 1 >= self._budget:
            return f"<answer>Diagnosis: d{left[0]}. Recommendation: r{left[0]}</answer>"
        best = min(new, key=lambda s: abs(2 * sum(self._table[d][s] for d in left) - len(left)))
        return f"<answer>s{best}?</answer>"

    def verdict(self) -> Verdict:
        """The terminal score, besides the rewards of turns; solved if diagnosis and recommendation are right."""
        solved = self._score >= 2 * MOST
        return Verdict(
            value=self._score, solved=solved, explanation=f"scored {self._score:.3g} of 10 after {self._turn} turns"
        )

    def measures(self) -> Mapping[str, float]:
        """Repeated questions, the terminal score, and the regret where the optimum is known."""
        rules = self._rules
        best = optimum(rules.diseases, rules.symptoms, self._budget, rules.process, rules.match)
        regret = {} if best is None else {"regret": best - self._rewarded - self._score}
        return {"repeats": float(self._repeats), "terminal": self._score, **regret}

    def _outcome(self, text: str, reward: float, *, done: bool = False, valid: bool = True) -> Outcome:
        given = reward if self._rules.process != "none" else 0.0
        self._rewarded += given
        return Outcome(observation=self._observation(text), reward=given, done=done, valid=valid)

    def _observation(self, text: str, *, counted: bool = True) -> Observation:
        turns = f" Turn {self._turn}/{self._budget}." if counted else ""
        key = " ".join(f"s{s}{'+' if had else '-'}" for s, had in sorted(self._known.items()))
        questions = [f"<answer>s{s}?</answer>" for s in range(self._rules.symptoms)]
        names = [f"<answer>Diagnosis: d{d}. Recommendation: r{d}</answer>" for d in range(self._rules.diseases)]
        return Observation(text=f"\n{text}{turns}\n", state_key=key, legal=(*questions, *names))

    def _scored(self, text: str) -> float:
        diagnosis = re.search(r"Diagnosis:\s*(.*?)(?:\.|\s*Recommendation:|\s*\Z)", text, re.DOTALL)
        advice = re.search(r"Recommendation:\s*(.*?)\.?\s*\Z", text, re.DOTALL)
        pairs = ((diagnosis, f"d{self._disease}"), (advice, f"r{self._disease}"))
        alikes = (alike(found[1].strip() if found else "", right, self._rules.match) for found, right in pairs)
        return MOST * sum(alikes)


def alike(text: str, right: str, match: str) -> float:
    """How well a text fits the right one, from 0 to 1: whether it is equal, or the overlap of characters."""
    if match == "exact":
        return float(text == right)
    return common(text, right) / max(len(text), len(right)) if text else 0.0


def common(a: str, b: str) -> int:
    """Length of the longest common subsequence of characters."""
    row = [0] * (len(b) + 1)
    for left in a:
        previous = 0
        for place, right in enumerate(b, start=1):
            previous, row[place] = row[place], previous + 1 if left == right else max(row[place], row[place - 1])
    return row[-1]
