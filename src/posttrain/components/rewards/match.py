r"""Whether the answer in a completion is the task's reference answer, as a number or as text.

The reference answer is the part after ``####`` or in ``\boxed`` where it has one (GSM8K, MATH), else all of it. How the
answer of a completion is extracted: `posttrain.grading.extraction`. Numbers and units: `posttrain.grading.numbers`.
Surrounding quotes, Markdown emphasis and a final full stop are ignored. The answer of an equation is its right side. A
reference answer that is a list of texts holds several answers, of which each is right.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.extraction import CASCADE, Extractor, Lists, find_answer, gold_answers, right_side, shown
from posttrain.grading.numbers import read_number, same_number, unwrapped
from posttrain.types import Group, Score, Trajectory


@frozen
class Match(Reward):
    """Rewards the reference answer."""

    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = CASCADE
    """Where to find the answer; the first extractor that finds something decides."""
    numeric: Literal["auto", "always", "never"] = "auto"
    """``auto`` compares numbers where the reference answer is one, else text. ``always`` compares numbers; another
    reference answer is an error, another answer is missing. ``never`` compares text."""
    tolerance: NonNegativeFloat = 0.0
    """Largest difference between two equal numbers; 0 is exact."""
    ignore_case: bool = True
    """For text: whether case is ignored."""
    ignore_space: bool = True
    """For text: whether runs of white space are equal to one space."""
    equation: bool = True
    """Whether the answer of an equation is its right side (6 in ``1 + 5 = 6``), where the reference answer is none."""
    lists: Lists = "auto"
    """Meaning of a reference answer that is a JSON list. ``auto``: of texts (``["4", "four"]``), each is right; any
    other list (``[1, 2]``) is itself the answer. ``any``: each item is right. ``text``: a list is itself the answer."""
    right: float = 1.0
    """Reward of the reference answer."""
    wrong: float = 0.0
    """Reward of another answer."""
    missing: float = 0.0
    """Reward of a completion in which no answer was found."""

    @property
    def needs_answer(self) -> bool:
        """True."""
        return True

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each answer with the reference answer."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        golds = gold_answers(task.answer or "", self.lists)
        if not golds:
            return failure(f"task '{task.key}' has no answer to compare with; give its row an 'answer' column")
        scores = [self._compare(trajectory, gold) for gold in golds]
        best = next((s for status in ("ok", "error") for s in scores if s.status == status), scores[0])
        if len(golds) == 1 or best.status != "wrong":
            return best
        return replace(best, explanation=f"{best.explanation}, nor any of {len(golds) - 1} other reference answers")

    def _compare(self, trajectory: Trajectory, gold: str) -> Score:
        """Compare a completion with one reference answer."""
        number = None if self.numeric == "never" else read_number(gold)
        if self.numeric == "always" and number is None:
            key = trajectory.task.key
            return failure(f"the answer of task '{key}', {shown(gold)}, is not a number, and numeric is 'always'")

        found = find_answer(trajectory, self.extract, gold=gold)
        if found is None:
            cut = " (an answer that is cut at the token limit is none)" if trajectory.stop_reason == "length" else ""
            where = ", ".join(self.extract)
            return Score(value=self.missing, status="wrong", explanation=f"no answer found by {where}{cut}")

        answer = unwrapped(self._side(found.text, gold))
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

    def _side(self, answer: str, gold: str) -> str:
        """The part of an answer to compare: of an equation its right side, unless the reference answer is one too."""
        side = right_side(answer) if self.equation and "=" not in gold else None
        return answer if side is None else side

    def _normal(self, text: str) -> str:
        text = unwrapped(text)
        text = " ".join(text.split()) if self.ignore_space else text
        return text.casefold() if self.ignore_case else text
