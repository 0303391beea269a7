"""RLCR: pays for a right answer and for having said how likely it is to be right.

Source: Damani et al. 2025, arXiv:2507.16806: R = c - (q - c)^2, with c 1 for a right answer and 0 for a wrong one, and
q the confidence that ends the completion, ``<confidence>0.7</confidence>``. Where an answer is right with probability
p, the mean of R is largest at q = p, and is p^2 there: more for better answers, so that accuracy is not given up. With
a logarithmic score it is p + p log p + (1 - p) log(1 - p), by which a hopeless answer (p = 0) beats one with p = 0.3.

The confidence must be a plain number in [0, 1] at the very end. In the released code a completion of another form gets
half a point less than the worst one of the right form, where R counts half: `malformed` is -2, one below -1.

Differs: the answer is whatever `correct` finds before the confidence; the paper also asks for tags around thoughts,
answer and analysis. The logarithm is held above that of 0.001, since a reward must be finite.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.grading.tags import TagName
from posttrain.types import Group, Score, Trajectory

Weight = Annotated[float, Field(ge=0.0)]

_PLAIN = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")
_SMALLEST = 1e-3


@frozen
class Calibrated(Reward):
    """Correctness plus a proper score of the stated confidence."""

    correct: Reward
    """Judges the answer: what it gives status ``ok`` is right. It sees what stands before the confidence."""
    rule: Literal["brier", "log"] = "brier"
    """``brier`` is -(q - c)^2; ``log`` is the logarithm of the probability given to what came out."""
    weight: Weight = 1.0
    """How much the score of the confidence counts beside the answer's 1 or 0; at 0 it is only recorded."""
    malformed: float | None = -2.0
    """Reward of a completion that does not end with a confidence; None judges its answer alone."""
    tag: TagName = "confidence"
    """Name of the tag around the confidence."""

    def prepare(self) -> None:
        """Prepare the judge of the answer."""
        self.correct.prepare()

    @property
    def roles(self) -> frozenset[str]:
        """Those of the judge of the answer."""
        return self.correct.roles

    @property
    def runs(self) -> str:
        """What the judge of the answer runs."""
        return self.correct.runs

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """The files of the judge of the answer."""
        return self.correct.fingerprint

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Take off each confidence, have the rest judged, and put both together."""
        split = [self._split(trajectory.completion) for trajectory in group]
        bare = [_with_text(t, text) for t, (text, _) in zip(group, split, strict=True)]
        judged = await self.correct.score(replace(group, trajectories=tuple(bare)), context)
        return [self._join(score, confidence) for score, (_, confidence) in zip(judged, split, strict=True)]

    def _split(self, text: str) -> tuple[str, float | None]:
        """The text before the confidence, and the confidence; the whole text and None where there is none."""
        opening, closing = f"<{self.tag}>", f"</{self.tag}>"
        stripped = text.rstrip()
        start = stripped.rfind(opening)
        if start < 0 or not stripped.endswith(closing):
            return text, None
        number = stripped[start + len(opening) : -len(closing)].strip()
        if not _PLAIN.fullmatch(number) or float(number) > 1.0:
            return text, None
        return text[:start], float(number)

    def _join(self, judged: Score, confidence: float | None) -> Score:
        if judged.status == "error":
            return judged
        right, parts = float(judged.status == "ok"), {"correct": judged}
        if confidence is None:
            value = right if self.malformed is None else self.malformed
            explanation = f"{judged.explanation}; does not end with a number from 0 to 1 in <{self.tag}>"
            return replace(judged, value=value, explanation=explanation, parts=parts)
        said = self._said(confidence, right)
        explanation = f"{judged.explanation}; confidence {confidence:g}: {self.rule} score {said:.4g}"
        return replace(
            judged,
            value=right + self.weight * said,
            confidence=confidence,
            explanation=explanation,
            parts=parts | {self.rule: Score(value=said, status="ok")},
        )

    def _said(self, confidence: float, right: float) -> float:
        """The proper score of a confidence."""
        if self.rule == "brier":
            return -((confidence - right) ** 2)
        return math.log(max(confidence if right else 1.0 - confidence, _SMALLEST))


def _with_text(trajectory: Trajectory, text: str) -> Trajectory:
    """The attempt as it would be with another completion."""
    place = next(i for i, s in enumerate(trajectory.segments) if s.actor != "prompt")
    segments = [replace(s, text=s.text if s.actor == "prompt" else "") for s in trajectory.segments]
    segments[place] = replace(segments[place], text=text)
    return replace(trajectory, segments=tuple(segments))
