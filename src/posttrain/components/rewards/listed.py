r"""Whether the answer of a completion is one of those that a field of its task lists: an equivalence table.

The answer is in the last ``\boxed``, or the whole text. Case, white space and a final full stop are ignored.

With `contains` an answer that has a listed one anywhere is accepted, which is how a weak verifier errs: an answer that
lists several values passes if one of them is right.
"""

import re
from collections.abc import Sequence

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault
from posttrain.grading.extraction import extract, shown
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class Listed(Reward):
    """Scores 1 for a listed answer, 0 for any other."""

    field: str = "forms"
    """Field of the task with the list of right answers."""
    contains: bool = False
    """Whether an answer that contains a listed one is accepted."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without a list of texts."""
        for task in tasks:
            if not self._right(task):
                raise TaskFault(
                    task.key,
                    f"task '{task.key}' has no field '{self.field}' with a list of texts, which the reward listed "
                    f"compares with; it has {', '.join(sorted(task.fields)) or 'no fields'}",
                )

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each answer with the list."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        right = self._right(trajectory.task)
        if not right:
            return failure(f"the task has no field '{self.field}' with a list of texts")
        found = extract(trajectory.completion, ("boxed", "whole"), cut=trajectory.stop_reason == "length")
        if found is None:
            return Score(value=0.0, status="wrong", explanation="no answer was found")
        answer = _plain(found.text)
        if self.contains:
            passed = any(re.search(rf"(?<![\w./]){re.escape(form)}(?![\w/]|\.\w)", answer) for form in right)
        else:
            passed = answer in right
        return Score(
            value=float(passed),
            status="ok" if passed else "wrong",
            answer=found.text,
            explanation=f"{shown(found.text)} is {'' if passed else 'not '}one of {len(right)} right answers",
        )

    def _right(self, task: Task) -> list[str]:
        """The right answers, as they are compared."""
        listed = task.fields.get(self.field)
        if not isinstance(listed, Sequence) or isinstance(listed, str):
            return []
        return [_plain(form) for form in listed if isinstance(form, str) and form.strip()]


def _plain(text: str) -> str:
    """A text in lower case, with single spaces, and without a final full stop."""
    return " ".join(text.casefold().split()).removesuffix(".")
