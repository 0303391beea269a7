"""How similar a completion is to the reference answer as a text: edit similarity, smoothed BLEU, chrF or TER.

Source: the scores of IRCoCo, arXiv:2401.16637 (Libolun-star/IRCoCo at 17199313, evaluator/generate_score.py): edit
similarity, which is twice the characters in common order divided by both lengths, or BLEU of up to four tokens. A
completion or a reference without a character has 0.

Differs: BLEU is that of words and of other characters one by one, not of the model's tokens, with one added to the
counts of all orders above the first (Lin and Och 2004). chrF (Popovic 2015) and TER (Snover et al. 2006), as 1 less the
edits for each word of the reference and at least 0, are sacrebleu's. Of a text the first 4,000 characters are compared,
for TER the first 50 words, since its shifts take seconds for more; the explanation states it.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import UserError
from posttrain.grading.similarity import LONGEST, fuzzy
from posttrain.types import Group, Score, Trajectory

_PIECE = re.compile(r"\w+|[^\w\s]")
ORDERS = 4
WORDS = 50
"""Words that TER reads."""


@frozen
class TextSimilarity(Reward):
    """Scores the similarity to the reference, in [0, 1]."""

    measure: Literal["edit", "bleu", "chrf", "ter"] = "edit"
    """What is measured."""
    correct_at: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Smallest similarity that counts as correct."""

    @property
    def needs_answer(self) -> bool:
        """The reference."""
        return True

    def prepare(self) -> None:
        """Load sacrebleu where it is used. Raises `UserError` where it is not installed."""
        if self.measure in ("chrf", "ter"):
            _of_library(self.measure, "a", "a")

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each completion with its reference."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        reference, text = trajectory.task.answer, trajectory.completion
        if reference is None:
            return failure(f"task '{trajectory.task.key}' has no answer to compare with")
        both = text.strip() and reference.strip()
        value = self._value(text, reference) if both else 0.0
        cut = self._cut(text) or self._cut(reference)
        return Score(
            value=value,
            status="ok" if value >= self.correct_at else "wrong",
            answer=text[:200],
            explanation=f"{self.measure} {value:.4f}{cut}",
        )

    def _value(self, text: str, reference: str) -> float:
        if self.measure == "edit":
            return fuzzy(text, reference)
        return bleu(text, reference) if self.measure == "bleu" else _of_library(self.measure, text, reference)

    def _cut(self, text: str) -> str:
        if self.measure == "ter" and len(text[:LONGEST].split()) > WORDS:
            return f", of the first {WORDS} words"
        return f", of the first {LONGEST} characters" if len(text) > LONGEST else ""


def _of_library(measure: str, text: str, reference: str) -> float:
    """Return chrF, or 1 less TER, in [0, 1]. Raises `UserError` where sacrebleu is not installed."""
    try:
        from sacrebleu.metrics.chrf import CHRF
        from sacrebleu.metrics.ter import TER
    except ImportError:
        raise UserError(
            f"{measure} is computed by the library sacrebleu; pip install 'posttrain[translation]'"
        ) from None
    if measure == "chrf":
        return float(CHRF().sentence_score(text[:LONGEST], [reference[:LONGEST]]).score) / 100
    own, wanted = (" ".join(given[:LONGEST].split()[:WORDS]) for given in (text, reference))
    return max(0.0, 1.0 - float(TER().sentence_score(own, [wanted]).score) / 100)


def bleu(text: str, reference: str) -> float:
    """Smoothed BLEU of two texts; 0 without a word in common."""
    own, wanted = _PIECE.findall(text[:LONGEST]), _PIECE.findall(reference[:LONGEST])
    logs = []
    for n in range(1, ORDERS + 1):
        found, known = (Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1)) for words in (own, wanted))
        common, total = (found & known).total(), found.total()
        if n == 1 and not common:
            return 0.0
        logs.append(math.log(common / total if n == 1 else (common + 1) / (total + 1)))
    brevity = min(0.0, 1.0 - len(wanted) / len(own))
    return math.exp(brevity + sum(logs) / ORDERS)
