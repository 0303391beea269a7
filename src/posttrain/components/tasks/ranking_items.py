"""Items for a judge that scores several candidates under a principle, in JSON.

Source: RewardAnything, arXiv:2506.03318, and its release. Each task of the source has the fields ``principle``,
``candidates`` (texts) and ``gold`` (a number for each). They are shown under masked names, model-1 and so on, in an
order that is drawn for each item; the field ``gold`` of an item has the scores by these names. A demonstration thinks
of the field ``thought``, if there is one, and gives the gold scores and the order; or the field ``points``, a number
for each candidate, where a judge to be imitated gave others.

Differs: the order is drawn anew for every item, where the release has one for each number of candidates.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Any

from pydantic import NonNegativeInt, field_validator

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.templates import Template, check_places, fill, marked, question_of
from posttrain.errors import UserError
from posttrain.types import Task

PLACES = ("principle", "question", "responses")
TEMPLATE = "{principle}\n{question}\n{responses}\n"


@frozen
class RankingItems(Tasks):
    """A judge's prompt for the candidates of every task."""

    tasks: Tasks
    """The source, with the fields principle, candidates and gold."""
    template: Template = TEMPLATE
    """Prompt. Placeholders: principle, question, responses."""
    marks: bool = False
    """Whether candidates stand between marks that they cannot contain, for a judge that follows instructions; else each
    is one line."""
    principle: bool = True
    """Whether the principle is shown; without it, what conflicting principles ask for cannot be known."""
    ranking: bool = True
    """Whether demonstrations end with the order, which a judge of points alone does without."""
    seed: NonNegativeInt = 0
    """Of the order."""

    @field_validator("template")
    @classmethod
    def check_template(cls, template: str) -> str:
        """Refuse a misspelled placeholder."""
        return check_places(template, PLACES)

    def load(self) -> Sequence[Task]:
        """An item for each task. Raises `UserError` for fields that are missing or do not fit each other."""
        return self._loaded

    def describe(self) -> str:
        """The number of items, and the description of the source."""
        return f"{len(self._loaded):,} items for a judge of several candidates\n{self.tasks.describe()}"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        return [self._item(task) for task in self.tasks.load()]

    def _item(self, task: Task) -> Task:
        candidates, gold = _candidates(task)
        order = Random(f"ranking_items:{self.seed}:{task.key}").sample(range(len(candidates)), len(candidates))
        names = [f"model-{place + 1}" for place in range(len(candidates))]
        texts = [candidates[i] for i in order]
        lines = [
            f"{n}: {marked(t) if self.marks else ' '.join(t.splitlines())}" for n, t in zip(names, texts, strict=True)
        ]
        scores = {name: gold[i] for name, i in zip(names, order, strict=True)}
        ranked = sorted(names, key=lambda name: -scores[name])
        points = task.fields.get("points", gold)
        if not isinstance(points, Sequence) or len(points) != len(gold):
            raise UserError(f"task {task.key}: points is {points!r:.60}, where a number for each candidate is needed")
        given = {name: points[i] for name, i in zip(names, order, strict=True)}
        principle = str(task.fields.get("principle", ""))
        values = {"principle": principle if self.principle else "", "question": question_of(task)}
        reply = json.dumps({"scores": given, **({"best-to-worst": ranked} if self.ranking else {})})
        thought = str(task.fields.get("thought", ""))
        return replace(
            task,
            prompt=fill(self.template, {**values, "responses": "\n".join(lines)}),
            answer=ranked[0],
            domain=task.domain or principle,
            demonstrations=(f"<think>{thought}</think>{reply}",),
            preferences=(),
            fields={**task.fields, "gold": scores},
        )


def _candidates(task: Task) -> tuple[list[str], list[float]]:
    """Candidates and gold scores of a task. Raises `UserError`."""
    candidates: Any = task.fields.get("candidates")
    gold: Any = task.fields.get("gold")
    if (
        not isinstance(candidates, Sequence)
        or isinstance(candidates, str)
        or not isinstance(gold, Sequence)
        or not len(candidates) == len(gold) > 1
        or any(isinstance(x, bool) or not isinstance(x, int | float) for x in gold)
    ):
        raise UserError(
            f"task {task.key}: an item needs at least two candidates (texts) and as many gold scores (numbers); got "
            f"candidates {candidates!r:.60} and gold {gold!r:.60}"
        )
    return [str(text) for text in candidates], list(gold)
