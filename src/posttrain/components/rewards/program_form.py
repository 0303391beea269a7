"""Rates small Bash programs from 1 to 5 by one of five preferences, by code: it stands in for a judge.

Source: the preferences of CodeUltraFeedback, arXiv:2403.09032; the measures are ours. Which one is the field
``preference`` of the task:

    instruction     1 + 4 x the share of the expression's terms that the program computes
    explanation     1, 3 or 5 for none, one, and two or more comments
    complexity      5, and 2 less for each loop, at least 1
    readability     mean length of the names that are read, rounded, from 1 to 5
    style           1 + 4 x the share of operators with a space on both sides

Without an arithmetic expansion a text is rated 1 by all five. The expression is what follows the first colon of the
prompt. Programs are not run: a program with a high rating may be wrong.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import Field

from posttrain.component import frozen, nearest
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.datasets.coding_preferences import RUBRICS
from posttrain.datasets.templates import question_of
from posttrain.errors import TaskFault
from posttrain.types import Group, Score, Task, Trajectory

_COMPUTED: Final = re.compile(r"\$\(\((.*?)\)\)", re.DOTALL)
_OPERATOR: Final = re.compile(r"[-+*]")


@frozen
class ProgramForm(Reward):
    """Rates the form of a program."""

    correct_at: Annotated[float, Field(ge=1.0, le=5.0)] = 4.0
    """Smallest rating that counts as correct."""

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without one of the five preferences."""
        for task in tasks:
            name = str(task.fields.get("preference", ""))
            if name not in RUBRICS:
                raise TaskFault(task.key, f"task '{task.key}' has the preference '{name}'; {nearest(name, RUBRICS)}")

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Rate each program by its task's preference."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        name = str(task.fields.get("preference", ""))
        if name not in RUBRICS:
            return failure(f"task '{task.key}' has the preference {name!r}, of which there is no measure")
        value = rating(trajectory.completion, name, question_of(task).partition(":")[2].strip())
        right = value >= self.correct_at
        return Score(value=value, status="ok" if right else "wrong", explanation=f"{name}: {value:g} of 5")


def rating(program: str, preference: str, expression: str) -> float:
    """The rating of a program, from 1 to 5."""
    computed = _COMPUTED.search(program)
    if computed is None:
        return 1.0
    if preference == "instruction":
        wanted, own = (len(_OPERATOR.findall(text)) + 1 for text in (expression, computed[1]))
        return 1.0 + 4.0 * min(wanted, own) / max(wanted, own)
    if preference == "explanation":
        return min(1.0 + 2.0 * len(re.findall(r"^[ \t]*#", program, re.MULTILINE)), 5.0)
    if preference == "complexity":
        return max(5.0 - 2.0 * len(re.findall(r"\b(?:for|while)\b", program)), 1.0)
    if preference == "readability":
        names = [name for line in re.findall(r"\bread ([a-z ]+)", program) for name in line.split()]
        return float(min(max(int(sum(map(len, names)) / len(names) + 0.5), 1), 5)) if names else 1.0
    operators = _OPERATOR.findall(computed[1])
    return 1.0 + 4.0 * len(re.findall(r"(?<= )[-+*](?= )", computed[1])) / max(len(operators), 1)
