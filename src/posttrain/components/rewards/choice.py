r"""Whether a completion chooses the right one of the task's options: 1 for its letter alone in the last box, else 0.

Source: the reward of AlphaMed, arXiv:2505.17952: the letter of a multiple-choice question, without a reward for format
or length. Its parser is not published. Here: the last ``\boxed{}``, without ``\text{}``, brackets and one ``.`` or
``:`` at its end, must be exactly one letter of an option. ``B. aspirin`` and ``A or B`` are wrong: what takes the first
letter rewards those who name several.

The options are the task's field ``options``: a list, lettered A, B, ..., or a mapping of letters. The answer is a
letter or the text of one option.
"""

import re
from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Gold, Reward, RewardContext, failure
from posttrain.errors import TaskFault
from posttrain.grading.extraction import Extractor, find_answer, shown
from posttrain.types import Group, Score, Task, Trajectory

_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")


@frozen
class Choice(Reward):
    """Scores 1 for the letter of the right option, 0 for anything else."""

    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = ("boxed",)
    """Where the answer is, the first that finds something."""

    @property
    def needs_answer(self) -> bool:
        """It compares with the reference answer."""
        return True

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without options, or whose answer is none of them."""
        for task in tasks:
            fault = _fault(task)
            if fault:
                raise TaskFault(task.key, f"task '{task.key}' {fault}")

    def gold(self, task: Task) -> Gold | None:
        """The letter in a box."""
        letter = letter_of(task.answer or "", options_of(task))
        return Gold(answer=letter, form=r"\boxed{{answer}}") if letter and "boxed" in self.extract else None

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each completion's letter with that of the reference."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        task = trajectory.task
        fault = _fault(task)
        if fault:
            return failure(f"task '{task.key}' {fault}")
        options = options_of(task)
        wanted = letter_of(task.answer or "", options)
        found = find_answer(trajectory, self.extract)
        if found is None:
            return Score(value=0.0, status="wrong", explanation=f"no answer found by {', '.join(self.extract)}")
        letter = bare_letter(found.text)
        if letter not in options:
            return Score(
                value=0.0, status="wrong", answer=found.text, explanation=f"{shown(found.text)} is not one letter alone"
            )
        right = letter == wanted
        return Score(
            value=float(right),
            status="ok" if right else "wrong",
            answer=letter,
            explanation=f"{letter}, the answer is {wanted}",
        )


def options_of(task: Task) -> dict[str, str]:
    """The options of a task by letter; empty if it has none."""
    given = task.fields.get("options")
    if isinstance(given, Mapping):
        return {str(letter).strip().upper(): str(text) for letter, text in given.items()}
    if isinstance(given, Sequence) and not isinstance(given, str) and len(given) <= len(ascii_uppercase):
        return dict(zip(ascii_uppercase, map(str, given), strict=False))
    return {}


def letter_of(answer: str, options: Mapping[str, str]) -> str | None:
    """The letter that a reference answer names, itself or by the text of its option; None if it names none."""
    letter = bare_letter(answer)
    if letter in options:
        return letter
    named = [letter for letter, text in options.items() if text.strip() == answer.strip()]
    return named[0] if len(named) == 1 else None


def bare_letter(text: str) -> str:
    r"""The text without ``\text{}``, brackets, spaces and one ``.`` or ``:`` at its end, in capitals."""
    bare = _TEXT.sub(r"\1", text[:200]).strip()
    bare = bare[:-1] if bare.endswith((".", ":")) else bare
    return bare.strip().strip("()[]").strip().upper()


def _fault(task: Task) -> str:
    """Why a task cannot be scored; empty if it can."""
    options = options_of(task)
    if len(options) < 2:
        return "has no options to choose from; give its row a column 'options' with a list of two or more"
    if letter_of(task.answer or "", options) is None:
        return f"has the answer {shown(task.answer or '')}, which is none of its options {', '.join(options)}"
    return ""
