"""Preference pairs as items of a judge that scores one response at a time: the chosen one high, the other low.

Every pair gives two items, whose demonstration is a reply in JSON with a reason and the highest or the lowest score of
the scale (`posttrain.datasets.judge_prompts`). The reason is of the pair's notes, one on the chosen and one on the
rejected response (column ``notes``); without them it is the task's demonstration up to its result, so that a judge
learns to solve the task before it scores; without either there is none.

Source: arXiv:2506.05748, whose judge learns from pairs with written reasons (HH-Rationales).

Differs: how pairs become scores is not published; two items with the ends of the scale are of this package.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.judge_prompts import JudgePrompt, reply
from posttrain.errors import UserError
from posttrain.types import Message, Preference, Task

SIDES = ("chosen", "rejected")


@frozen
class ScoreItems(Tasks):
    """A judge's prompt for every response of a pair."""

    tasks: Tasks
    """The source; at least one task must have preferences."""
    prompt: JudgePrompt = JudgePrompt()
    """How a response is shown, and the scale."""
    reasons: bool = True
    """Whether replies have a reason."""

    def load(self) -> Sequence[Task]:
        """The items in the order of the pairs, the chosen response first. Raises `UserError` without a pair."""
        return self._loaded

    def describe(self) -> str:
        """The number of items, and the description of the source."""
        return f"{len(self._loaded):,} items for a judge of one response\n{self.tasks.describe()}"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        items = [
            self._item(task, pair, number, side)
            for task in self.tasks.load()
            for number, pair in enumerate(task.preferences)
            for side in (0, 1)
        ]
        if not items:
            raise UserError(
                "none of the tasks has a preference to make items for a judge of; give columns named chosen and "
                "rejected"
            )
        return items

    def _item(self, task: Task, pair: Preference, number: int, side: int) -> Task:
        low, high = self.prompt.scale
        score = low if side else high
        text = self.prompt.text(task, (pair.chosen, pair.rejected)[side])
        return replace(
            task,
            key=f"{task.key}-{number}-{SIDES[side]}",
            prompt=(Message(role="user", content=text),) if self.prompt.chat else text,
            answer=f"{score:g}",
            domain=SIDES[side],
            demonstrations=(reply(self._reason(task, pair, side), score),),
            preferences=(),
        )

    def _reason(self, task: Task, pair: Preference, side: int) -> str:
        notes = pair.fields.get("notes", task.fields.get("notes"))
        if not self.reasons:
            return ""
        if isinstance(notes, Sequence) and not isinstance(notes, str) and len(notes) == 2:
            return str(notes[side])
        return task.demonstrations[0].split("\n####")[0].strip() if task.demonstrations else ""
