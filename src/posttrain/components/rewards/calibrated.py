"""RLCR: a reward for correct answers plus a proper scoring rule for the stated confidence.

Source: Damani et al. 2025, arXiv:2507.16806: R = c - (q - c)^2, with c 1 for a correct answer and 0 for an incorrect
one, and q the confidence at the end of the completion, ``<confidence>0.7</confidence>``. Where an answer is correct
with probability p, the mean of R is largest at q = p, where it is p^2. It grows with p, so that accuracy is still
rewarded. With a logarithmic score it is p + p log p + (1 - p) log(1 - p), which is larger at p = 0 than at p = 0.3.

The confidence must be a plain number in [0, 1] at the very end. In the released code, R has the weight one half, and a
malformed completion gets half a point less than the worst well-formed one: `malformed` is -2, one below -1.

Differs: the answer is what `correct` finds before the confidence; the paper also requires tags around thoughts, answer
and analysis. Probabilities are at least 0.001 in the logarithm, since a reward must be finite.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.grading.pieces import with_text
from posttrain.grading.tags import TagName
from posttrain.types import Group, Score

Weight = Annotated[float, Field(ge=0.0)]

_PLAIN = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_SMALLEST = 1e-3


@frozen
class Calibrated(Reward):
    """Adds a proper score of the stated confidence to the reward of correctness."""

    correct: Reward
    """Scores the answer, the text before the confidence; status ``ok`` is correct."""
    rule: Literal["brier", "log"] = "brier"
    """``brier`` is -(q - c)^2; ``log`` is the logarithm of the probability that was given to the outcome."""
    weight: Weight = 1.0
    """Weight of the score of the confidence, beside 1 or 0 for the answer; at 0 it is only recorded."""
    malformed: float | None = -2.0
    """Reward of a completion that does not end with a confidence; None scores its answer alone."""
    tag: TagName = "confidence"
    """Name of the tag around the confidence."""

    def prepare(self) -> None:
        """Prepare the reward of correctness."""
        self.correct.prepare()

    @property
    def roles(self) -> frozenset[str]:
        """Those of the reward of correctness."""
        return self.correct.roles

    @property
    def compares(self) -> bool:
        """Whether the reward of correctness does."""
        return self.correct.compares

    @property
    def runs(self) -> str:
        """What the reward of correctness runs."""
        return self.correct.runs

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """The files of the reward of correctness."""
        return self.correct.fingerprint

    @property
    def needs_answer(self) -> bool:
        """Whether the reward of correctness does."""
        return self.correct.needs_answer

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Split off each confidence, score the rest, and add both."""
        split = [self._split(trajectory.completion) for trajectory in group]
        bare = [with_text(t, text) for t, (text, _) in zip(group, split, strict=True)]
        scored = await self.correct.score(replace(group, trajectories=tuple(bare)), context)
        return [self._join(score, confidence) for score, (_, confidence) in zip(scored, split, strict=True)]

    def _split(self, text: str) -> tuple[str, float | None]:
        """The text before the confidence, and the confidence; the whole text and None without one."""
        opening, closing = f"<{self.tag}>", f"</{self.tag}>"
        stripped = text.rstrip()
        start = stripped.rfind(opening)
        if start < 0 or not stripped.endswith(closing):
            return text, None
        number = stripped[start + len(opening) : -len(closing)].strip()
        if not _PLAIN.fullmatch(number) or float(number) > 1.0:
            return text, None
        return text[:start], float(number)

    def _join(self, scored: Score, confidence: float | None) -> Score:
        if scored.status == "error":
            return scored
        right, parts = float(scored.status == "ok"), {"correct": scored}
        if confidence is None:
            value = right if self.malformed is None else self.malformed
            explanation = f"{scored.explanation}; does not end with a number from 0 to 1 in <{self.tag}>"
            return replace(scored, value=value, explanation=explanation, parts=parts)
        proper = self._proper_score(confidence, right)
        explanation = f"{scored.explanation}; confidence {confidence:g}: {self.rule} score {proper:.4g}"
        return replace(
            scored,
            value=right + self.weight * proper,
            confidence=confidence,
            explanation=explanation,
            parts=parts | {self.rule: Score(value=proper, status="ok")},
        )

    def _proper_score(self, confidence: float, right: float) -> float:
        """The proper score of a confidence."""
        if self.rule == "brier":
            return -((confidence - right) ** 2)
        return math.log(max(confidence if right else 1.0 - confidence, _SMALLEST))
