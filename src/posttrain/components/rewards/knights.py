"""Whether an answer states of everyone in a puzzle of knights and knaves what they are, in any order and wording.

Each ``A knave``, ``A is a knave``, ``A: knave`` in the answer is an assignment. Everyone must be named, nobody twice in
different ways, and nobody who is not in the puzzle.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.extraction import CASCADE, Extractor, find_answer, shown
from posttrain.types import Group, Score, Trajectory

_ASSIGNMENT = re.compile(r"\b([A-Za-z]+)\b[\s*_]*(?:[:=]|\bis\b)?[\s*_]*(?:\ban?\b)?[\s*_]*\b(knight|knave)s?\b", re.I)


@frozen
class Knights(Reward):
    """Rewards the one consistent assignment. The task's field ``kinds`` has it: ``{A: knave, B: knight}``."""

    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = CASCADE
    """Where to find the answer; the first extractor that finds something decides."""
    right: float = 1.0
    """Reward of the solution."""
    wrong: float = 0.0
    """Reward of another assignment."""
    missing: float = 0.0
    """Reward of a completion that assigns nobody."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each assignment with the solution."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        kinds = trajectory.task.fields.get("kinds")
        if not isinstance(kinds, Mapping) or not kinds:
            return failure(f"task '{trajectory.task.key}' is no puzzle: its field 'kinds' is {shown(repr(kinds))}")
        found = find_answer(trajectory, self.extract)
        named = [(who.upper(), kind.lower()) for who, kind in _ASSIGNMENT.findall(found.text)] if found else []
        if found is None or not named:
            return Score(value=self.missing, status="wrong", explanation="no answer that states who is what")
        solution = {(str(who).upper(), str(kind)) for who, kind in kinds.items()}
        if set(named) == solution:
            return Score(value=self.right, status="ok", answer=found.text, explanation="the solution")
        return Score(
            value=self.wrong, status="wrong", answer=found.text, explanation=f"{shown(found.text)} is not the solution"
        )
