"""Whether a regular expression matches the completion.

The syntax is Python's. Matching takes time linear in the length of the completion. Patterns that cannot be matched in
linear time (back-references, look-around, possessive repeats, atomic groups) are refused when the recipe is read:
`posttrain.grading.linear_regex`. A function of the user (`function`) can use them.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from pydantic import field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.grading.linear_regex import LinearPattern, Refused
from posttrain.types import Group, Score


@frozen
class Regex(Reward):
    """Rewards text that matches a pattern."""

    pattern: str
    """The expression; flags are inside it, ``(?is)`` for example."""
    full: bool = False
    """Whether the whole completion must match, or any part of it."""
    matched: float = 1.0
    """Reward where it matches."""
    unmatched: float = 0.0
    """Reward where it does not."""

    @field_validator("pattern")
    @classmethod
    def check_pattern(cls, pattern: str) -> str:
        """Refuse text that is no regular expression, or one that cannot be matched in linear time."""
        try:
            re.compile(pattern)
            _compiled(pattern, False)
        except re.error as error:
            at = "" if error.pos is None else f" at character {error.pos}, before {pattern[error.pos :][:20]!r}"
            context = {"why": f"{error.msg}{at}"}
            raise PydanticCustomError("regex", "not a regular expression: {why}", context) from None
        except (Refused, RecursionError, OverflowError) as error:
            why = str(error) if isinstance(error, Refused) else "it is nested too deeply or counts too far"
            advice = "use a function of your own instead (kind: function)"
            context = {"why": why, "advice": advice}
            raise PydanticCustomError("regex", "this pattern is refused: {why}; {advice}", context) from None
        return pattern

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Match each completion."""
        return [self._score(trajectory.completion) for trajectory in group]

    def _score(self, text: str) -> Score:
        way = "all" if self.full else "some part"
        if _compiled(self.pattern, self.full).matches(text):
            return Score(value=self.matched, status="ok", explanation=f"{way} of the text matches {self.pattern!r}")
        way = "not all" if self.full else "no part"
        return Score(value=self.unmatched, status="wrong", explanation=f"{way} of the text matches {self.pattern!r}")


@lru_cache(maxsize=64)
def _compiled(pattern: str, full: bool) -> LinearPattern:
    return LinearPattern(pattern, full=full)
