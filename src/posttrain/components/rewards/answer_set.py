r"""Whether an answer states the right set: one of yes and no, letters of options, or items.

Source: the rewards of Curr-ReFT, arXiv:2503.07065, and its release (ding523/Curr_REFT at f123433e). The answer is in
``<answer>``, or else the whole text.

    yes_no    yes, true and correct are yes, no, false and incorrect are no, as whole words; yes where both are there.
              1 for the right one, else 0.
    letters   the letters A to E that stand alone, and words of such letters (``AC``). 1 for the right set, `partial`
              for a part of it without a wrong letter, else 0. 0.2 in the paper; the release has 0, and compares the
              order.
    items     what stands between commas, semicolons and line ends, without case and outer spaces. Common items over all
              items of both sets (Jaccard), 0 for two empty ones.

An answer without anything of the form is wrong: in the release's rule for open answers two answers without a letter are
equal, an empty answer is a part of every reference, and parts need no word borders, so that all of these have 1.

Differs: items are not split at spaces, since names have some.
"""

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault
from posttrain.grading.extraction import Extractor, find_answer, shown
from posttrain.types import Group, Score, Task, Trajectory

_WORDS = {"yes": "yes", "true": "yes", "correct": "yes", "no": "no", "false": "no", "incorrect": "no"}
_WORD = re.compile(rf"\b({'|'.join(_WORDS)})\b", re.IGNORECASE)
_LETTERS = re.compile(r"\b[A-E]+\b")


@frozen
class AnswerSet(Reward):
    """Compares the set that an answer states with that of the reference answer."""

    form: Literal["yes_no", "letters", "items"] = "items"
    """What an answer consists of."""
    partial: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.2
    """Reward of a part of the right letters; the other forms do not use it."""
    extract: Annotated[tuple[Extractor, ...], Field(min_length=1)] = ("answer_tag", "whole")
    """Where the answer is, the first that finds something."""

    @property
    def needs_answer(self) -> bool:
        """It compares with the reference answer."""
        return True

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a reference answer without anything of the form."""
        for task in tasks:
            if not self._set(task.answer or ""):
                raise TaskFault(task.key, f"task '{task.key}' {self._fault(task)}")

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each answer with the reference."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        wanted = self._set(trajectory.task.answer or "")
        if not wanted:
            return failure(f"task '{trajectory.task.key}' {self._fault(trajectory.task)}")
        answer = find_answer(trajectory, self.extract)
        found = self._set(answer.text) if answer else frozenset[str]()
        value = self._value(found, wanted)
        stated = ", ".join(sorted(found))
        return Score(
            value=value,
            status="ok" if found == wanted else "wrong",
            answer=stated,
            explanation=f"{shown(stated) if found else 'no answer'}, the answer is {shown(', '.join(sorted(wanted)))}",
        )

    def _value(self, found: frozenset[str], wanted: frozenset[str]) -> float:
        if self.form == "items":
            return len(found & wanted) / len(found | wanted)
        if found == wanted:
            return 1.0
        return self.partial if self.form == "letters" and found and found < wanted else 0.0

    def _set(self, text: str) -> frozenset[str]:
        """What a text states."""
        if self.form == "letters":
            return frozenset("".join(_LETTERS.findall(text)))
        if self.form == "yes_no":
            words = {_WORDS[word.lower()] for word in _WORD.findall(text)}
            return frozenset({"yes"} if "yes" in words else words)
        items = (" ".join(item.lower().split()) for item in re.split(r"[,;\n]", text))
        return frozenset(item for item in items if item)

    def _fault(self, task: Task) -> str:
        what = {"yes_no": "yes or no", "letters": "a letter of A to E", "items": "an item"}[self.form]
        return f"has the answer {shown(task.answer or '')} without {what}; give its row another one, or another form"
