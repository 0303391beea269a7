"""Whether an expression makes the target of a countdown task from its numbers.

The expression is evaluated exactly, by `posttrain.grading.expressions`. Of an equation, ``(1 + 2) * 4 = 12``, the part
before the first equals sign is scored. The game of TinyZero (Pan et al. 2025), which requires every number once.
"""

from collections import Counter
from collections.abc import Sequence
from numbers import Integral
from typing import Annotated, Any, TypeGuard

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.expressions import evaluate, numbers_used
from posttrain.grading.extraction import CASCADE, Extractor, find_answer, shown
from posttrain.types import Group, Score, Trajectory


@frozen
class Countdown(Reward):
    """Rewards an expression that reaches the target. The task has the fields ``numbers`` and ``target``."""

    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = CASCADE
    """Where to find the expression; the first extractor that finds something decides."""
    use_all: bool = True
    """Whether every number must be used; otherwise each may be used at most as often as it is given."""
    right: float = 1.0
    """Reward of an expression that reaches the target."""
    wrong: float = 0.0
    """Reward of another expression, of one with other numbers, and of text that is no expression."""
    missing: float = 0.0
    """Reward of a completion without an expression."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Evaluate each expression."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        fields = trajectory.task.fields
        numbers, target = fields.get("numbers"), fields.get("target")
        if not _are_whole(numbers) or not _is_whole(target):
            got = f"numbers = {shown(repr(numbers))}, target = {shown(repr(target))}"
            return failure(f"task '{trajectory.task.key}' is no countdown task: whole numbers are needed, got {got}")
        found = find_answer(trajectory, self.extract)
        if found is None:
            explanation = f"no expression found by {', '.join(self.extract)}"
            return Score(value=self.missing, status="wrong", explanation=explanation)
        expression = _expression(found.text)
        fault = self._fault(expression, [int(n) for n in numbers], int(target))
        explanation = f"{shown(expression)} (by {found.where}) {fault or f'is {target}'}"
        if fault:
            return Score(value=self.wrong, status="wrong", answer=expression, explanation=explanation)
        return Score(value=self.right, status="ok", answer=expression, explanation=explanation)

    def _fault(self, expression: str, numbers: list[int], target: int) -> str:
        """Why an expression is no solution; empty for a solution."""
        used = numbers_used(expression)
        if used is None:
            return "is no expression"
        given = Counter(numbers)
        allowed = Counter(used) == given if self.use_all else Counter(used) <= given
        if not allowed:
            how = "each of them once" if self.use_all else "none of them more often than given"
            return f"uses {used}, given are {numbers}, {how}"
        value = evaluate(expression)
        if value is None:
            return "divides by zero"
        return "" if value == target else f"is {value}, not {target}"


def _expression(text: str) -> str:
    """The part of an answer before an equals sign, in plain notation, without quotes or emphasis around it."""
    for latex, plain in ((r"\times", "*"), (r"\cdot", "*"), (r"\div", "/")):
        text = text.replace(latex, plain)
    text = text.strip("`$ \n").removesuffix(".").removeprefix("**").removesuffix("**")
    return text.partition("=")[0].strip()


def _is_whole(number: Any) -> TypeGuard[int]:
    return isinstance(number, Integral) and not isinstance(number, bool)


def _are_whole(numbers: Any) -> TypeGuard[Sequence[int]]:
    return isinstance(numbers, Sequence) and not isinstance(numbers, str) and all(map(_is_whole, numbers))
