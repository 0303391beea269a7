"""How like a completion is to the reference, or to the source of a translation, in meaning, by a learned encoder.

Source: the semantic score ("Sem") of MT-R1-Zero, arXiv:2504.10160, with the multilingual universal sentence encoder
(Yang et al. 2019, arXiv:1907.04307) in place of COMET-Kiwi (`posttrain.grading.meanings`). The value is the cosine of
the embeddings, in [0, 1].

A learned score can be had without a translation, so two rules go before it. A copy of the source, which beside the
source would have 1, has 0: `copy_at` is the share of characters in common from which a text is one, unless the
reference is as near to the source. A text with a number in digits that the other text has not, where that has numbers
too, has 0 (`numbers`). What is left is known and stays: other orders of the words and repeats lose little.

Differs: of a text the first 2,000 characters are read, which the explanation and the part ``cut`` report.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, counted, failure
from posttrain.grading.meanings import LONGEST, likeness, load_encoder, numbers_of
from posttrain.grading.similarity import copies, source_of
from posttrain.types import Group, Score, Trajectory

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Semantic(Reward):
    """Scores likeness in meaning, in [0, 1]."""

    against: Literal["reference", "source"] = "reference"
    """What a completion is compared with: the answer, or the field ``source`` (else the prompt), in any language."""
    copy_at: Share | None = 0.9
    """Share of characters in common with the source from which a text is a copy; null lets copies pass."""
    numbers: bool = True
    """Whether numbers in digits must be those of the other text."""
    correct_at: Share = 0.9
    """Smallest likeness that counts as correct."""

    @property
    def needs_answer(self) -> bool:
        """The reference, where that is compared with."""
        return self.against == "reference"

    def prepare(self) -> None:
        """Load the encoder. Raises `UserError` where it is not installed."""
        load_encoder()

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each completion with its reference, or its source."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        task, text = trajectory.task, trajectory.completion.strip()
        source, reference = source_of(task).strip(), (task.answer or "").strip()
        other = reference if self.against == "reference" else source
        if not other:
            return failure(f"task '{task.key}' has no {self.against} to compare with")
        cut = len(text) > LONGEST or len(other) > LONGEST
        parts = {"cut": counted(cut)}
        if why := self._refused(text, other, source, reference):
            return Score(value=0.0, status="wrong", answer=text[:200], explanation=why, parts=parts)
        value = likeness(text, other)
        return Score(
            value=value,
            status="ok" if value >= self.correct_at else "wrong",
            answer=text[:200],
            explanation=f"likeness {value:.4f}{f', of the first {LONGEST} characters' * cut}",
            parts=parts,
        )

    def _refused(self, text: str, other: str, source: str, reference: str) -> str:
        """Why a text has 0, whatever the encoder makes of it; empty if it may have more."""
        if not text:
            return "nothing was written"
        if self.copy_at is not None and copies(text[:LONGEST], source, reference, self.copy_at):
            return "a copy of the source"
        wanted, own = numbers_of(other), numbers_of(text)
        if self.numbers and wanted and own - wanted:
            return f"a number that the {self.against} has not: {min(own - wanted)[:20]}"
        return ""
