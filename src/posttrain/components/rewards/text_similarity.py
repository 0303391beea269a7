"""How similar a completion is to the reference answer as a text: edit similarity, or smoothed BLEU.

Source: the scores of IRCoCo, arXiv:2401.16637 (Libolun-star/IRCoCo at 17199313, evaluator/generate_score.py): edit
similarity, which is twice the characters in common order divided by both lengths, or BLEU of up to four tokens. A
completion or a reference without a character has 0.

Differs: BLEU is that of words and of other characters one by one, not of the model's tokens, with one added to the
counts of all orders above the first (Lin and Och 2004). Of a text the first 4,000 characters are compared.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.similarity import LONGEST, fuzzy
from posttrain.types import Group, Score, Trajectory

_PIECE = re.compile(r"\w+|[^\w\s]")
ORDERS = 4


@frozen
class TextSimilarity(Reward):
    """Scores the similarity to the reference, in [0, 1]."""

    measure: Literal["edit", "bleu"] = "edit"
    """What is measured."""
    correct_at: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Smallest similarity that counts as correct."""

    @property
    def needs_answer(self) -> bool:
        """The reference."""
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each completion with its reference."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        reference, text = trajectory.task.answer, trajectory.completion
        if reference is None:
            return failure(f"task '{trajectory.task.key}' has no answer to compare with")
        both = text.strip() and reference.strip()
        value = 0.0 if not both else fuzzy(text, reference) if self.measure == "edit" else bleu(text, reference)
        return Score(
            value=value,
            status="ok" if value >= self.correct_at else "wrong",
            answer=text[:200],
            explanation=f"{self.measure} {value:.4f}",
        )


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
