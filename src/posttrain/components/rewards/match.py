r"""Whether the answer in a completion is the task's reference answer, as a number or as text.

The reference answer is what stands after ``####`` or in ``\boxed`` where it has them (GSM8K, MATH), else all of it.
Which part of the completion is its answer: `posttrain.grading.extraction`. What counts as a number, and what becomes
of units: `posttrain.grading.numbers`. Surrounding quotes, Markdown emphasis and a final full stop never count.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.extraction import CASCADE, Extractor, find_answer, gold_answer, shown
from posttrain.grading.numbers import read_number, same_number, unwrapped
from posttrain.types import Group, Score, Trajectory


@frozen
class Match(Reward):
    """Pays for the reference answer."""

    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = CASCADE
    """Where to look for the answer, in order; the first place that holds something decides."""
    numeric: Literal["auto", "always", "never"] = "auto"
    """``auto`` compares numbers where the reference answer is one, else text; ``always`` calls any other reference
    answer an error, and takes an answer that is no number for a missing one; ``never`` compares text."""
    tolerance: NonNegativeFloat = 0.0
    """Largest difference between two numbers that are called equal; 0 is exact."""
    ignore_case: bool = True
    """For text: whether capital letters are small ones."""
    ignore_space: bool = True
    """For text: whether any run of white space is one space."""
    right: float = 1.0
    """Reward of the reference answer."""
    wrong: float = 0.0
    """Reward of another answer."""
    missing: float = 0.0
    """Reward of a completion in which no answer was found."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each answer with its task's."""
        return [self._judge(trajectory) for trajectory in group]

    def _judge(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        gold = gold_answer(task.answer or "")
        if not gold:
            return failure(f"task '{task.key}' has no answer to compare with; give its row an 'answer' column")
        number = None if self.numeric == "never" else read_number(gold)
        if self.numeric == "always" and number is None:
            return failure(f"the answer of task '{task.key}', {shown(gold)}, is not a number, and numeric is 'always'")

        found = find_answer(trajectory, self.extract, gold=gold)
        if found is None:
            cut = " (an answer that is cut at the token limit is none)" if trajectory.stop_reason == "length" else ""
            where = ", ".join(self.extract)
            return Score(value=self.missing, status="wrong", explanation=f"no answer found by {where}{cut}")

        answer = unwrapped(found.text)
        if number is None:
            right, way = self._normal(answer) == self._normal(gold), "as text"
        else:
            answered = read_number(answer)
            if answered is None and self.numeric == "always":
                explanation = f"{shown(answer)} (by {found.where}) is not a number"
                return Score(value=self.missing, status="wrong", answer=answer, explanation=explanation)
            right = answered is not None and same_number(answered, number, Fraction(repr(self.tolerance)))
            way = "as numbers with a unit" if number.unit else "as numbers"
        verdict = "is" if right else "is not"
        explanation = f"{shown(answer)} (by {found.where}) {verdict} {shown(gold)}, compared {way}"
        if right:
            return Score(value=self.right, status="ok", answer=answer, explanation=explanation)
        return Score(value=self.wrong, status="wrong", answer=answer, explanation=explanation)

    def _normal(self, text: str) -> str:
        text = unwrapped(text)
        text = " ".join(text.split()) if self.ignore_space else text
        return text.casefold() if self.ignore_case else text
