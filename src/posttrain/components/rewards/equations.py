"""Whether the last step of a completion is a true equation of whole numbers: a process reward model by rule.

``82-8=74`` is true, ``82-8=73`` false, a step without an equation neither. Steps end with a line or a semicolon. It has
the fault that learned process reward models have: a trivial step such as ``74+0=74`` scores as high as one that brings
the answer nearer.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.grading.expressions import evaluate
from posttrain.grading.pieces import ranges_of
from posttrain.types import Group, Score

Share = Annotated[float, Field(ge=0.0, le=1.0)]
_MOST = 1_000_000


@frozen
class Equations(Reward):
    """Scores the last step, in [0, 1]."""

    true: Share = 0.95
    """Score of a true equation."""
    false: Share = 0.05
    """Score of a false one."""
    none: Share = 0.5
    """Score of a step without an equation, such as a final answer."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Evaluate both sides of the last step of each completion."""
        return [self._score(trajectory.completion) for trajectory in group]

    def _score(self, text: str) -> Score:
        ranges = ranges_of(text, "steps", _MOST)
        step = text[slice(*ranges[-1])].rstrip(";") if ranges else ""
        sides = [evaluate(side) for side in step.split("=", 3)] if len(step) <= 500 else []
        if len(sides) != 2 or None in sides:
            return Score(value=self.none, status="wrong", explanation="the last step is no equation")
        right = sides[0] == sides[1]
        verdict = "true" if right else "false"
        return Score(value=self.true if right else self.false, status="ok" if right else "wrong", explanation=verdict)
