"""Preference pairs of other tasks as tasks for a judge: which of two candidates is better, with the label as answer.

Which candidate comes first is drawn by item, and with ``order: both`` every pair is asked in both orders, as two tasks.
The label is the letter of the chosen candidate, the sentence that names it, or the strength of the preference with its
sign, negative where A is better (a column or a number of the pair, ``strength``; 1 without). A demonstration has the
form ``<think>thought</think><answer>label</answer>``. The thought is the column ``thought`` of the row, or is made of
the pair's notes, one on the chosen and one on the rejected candidate (column ``notes``): "A 11, B 10"; without either
it is empty. The strength names the domain, where the task has none.

Source: the items of UnifiedReward-Think, arXiv:2503.03318, Think-RM, arXiv:2505.16265, and J1, arXiv:2505.11875.

Differs: the first two have a fixed order; ``order: as_given`` puts the chosen candidate first where the column
``label`` is A and second where it is B.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Literal

from pydantic import NonNegativeInt, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.keys import digest
from posttrain.datasets.templates import Template, check_closed, check_places, fill_closed, marked, places, question_of
from posttrain.errors import UserError
from posttrain.types import Preference, Task

PLACES = ("question", "first", "second", "marked_first", "marked_second")
LETTERS = ("A", "B")
TEMPLATE = "{question}\nA: {first}\nB: {second}\n"


@frozen
class JudgeItems(Tasks):
    """A judge's prompt for every pair."""

    tasks: Tasks
    """The source; at least one task must have preferences."""
    template: Template = TEMPLATE
    """Prompt. Placeholders: question, first and second (the candidates, which the text after each marks: it stands in
    neither of them), and marked_first and marked_second, between marks that they cannot contain, for a judge that
    follows instructions and for candidates of several lines."""
    label: Literal["letter", "sentence", "strength"] = "letter"
    """``letter``: A; ``sentence``: "Answer 1 is better"; ``strength``: -2."""
    order: Literal["drawn", "both", "as_given"] = "drawn"
    """Order of the candidates."""
    thoughts: Literal["notes", "again", "none"] = "notes"
    """``notes``: as above; ``again``: the notes twice, with "wait" between; ``none``: demonstrations of the label
    alone, after an empty thought."""
    seed: NonNegativeInt = 0
    """Of the drawn order."""

    @field_validator("template")
    @classmethod
    def check_template(cls, template: str) -> str:
        """Refuse a template without both candidates."""
        if not all(places(template) & {name, f"marked_{name}"} for name in ("first", "second")):
            raise PydanticCustomError("place", "the template must show both: write {{first}} and {{second}} somewhere")
        return check_closed(check_places(template, PLACES), ("first", "second"))

    def load(self) -> Sequence[Task]:
        """The items in the order of the pairs. Raises `UserError` where there is no pair, or one without a label."""
        return self._loaded

    def describe(self) -> str:
        """The number of items, and the description of the source."""
        return f"{len(self._loaded):,} items for a judge, of pairs ({self.order} order)\n{self.tasks.describe()}"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        pairs = [(task, pair) for task in self.tasks.load() for pair in task.preferences]
        if not pairs:
            raise UserError(
                "none of the tasks has a preference to make an item for a judge of; give columns named "
                "chosen and rejected"
            )
        made: list[Task] = []
        seen: dict[str, int] = {}
        for task, pair in pairs:
            number = seen[task.key] = seen.get(task.key, 0) + 1
            key = task.key if number == 1 else f"{task.key}-{number}"
            for place in self._places(task, key):
                made.append(self._item(task, pair, f"{key}-{LETTERS[place]}" if self.order == "both" else key, place))
        return made

    def _places(self, task: Task, key: str) -> Sequence[int]:
        """Where the chosen candidate stands, for each item of a pair."""
        if self.order == "both":
            return (0, 1)
        if self.order == "drawn":
            return (Random(f"judge_items:{self.seed}:{key}").randrange(2),)
        given = task.fields.get("label")
        if given not in LETTERS:
            raise UserError(
                f"task {task.key}: order=as_given needs a column 'label' that is A or B, not {given!r}; give it, or "
                "take order=drawn"
            )
        return (LETTERS.index(given),)

    def _item(self, task: Task, pair: Preference, key: str, place: int) -> Task:
        """The item with the chosen candidate at a place, 0 or 1."""
        shown = [pair.chosen, pair.rejected] if place == 0 else [pair.rejected, pair.chosen]
        values = {"question": question_of(task)}
        values |= {"marked_first": marked(shown[0]), "marked_second": marked(shown[1])}
        label = self._label(task, pair, place)
        thought = self._thought(task, pair, place)
        fields = {"label": LETTERS[place], "pair": digest(task.key, pair.chosen, pair.rejected)}
        return replace(
            task,
            key=key,
            prompt=fill_closed(self.template, values, {"first": shown[0], "second": shown[1]}),
            answer=label,
            demonstrations=(f"<think>{thought}</think><answer>{label}</answer>",),
            preferences=(),
            fields={**task.fields, **fields},
        )

    def _label(self, task: Task, pair: Preference, place: int) -> str:
        if self.label == "letter":
            return LETTERS[place]
        if self.label == "sentence":
            return f"Answer {place + 1} is better"
        strength = 1.0 if pair.strength is None else pair.strength
        if strength not in (1, 2, 3):
            raise UserError(
                f"task {task.key}: the strength of a preference is 1, 2 or 3, not {strength!r}; correct it, or take "
                "label=letter"
            )
        return f"{int(strength) * (-1 if place == 0 else 1)}"

    def _thought(self, task: Task, pair: Preference, place: int) -> str:
        notes = pair.fields.get("notes", task.fields.get("notes"))
        if self.thoughts == "none":
            return ""
        if isinstance(notes, Sequence) and not isinstance(notes, str) and len(notes) == 2:
            first, second = notes if place == 0 else reversed(notes)
            line = f"A {first}, B {second}"
            return f"{line}, wait, {line}" if self.thoughts == "again" else line
        return str(task.fields.get("thought", ""))
