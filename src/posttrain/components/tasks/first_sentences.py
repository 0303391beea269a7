"""Items for a verifier, and first sentences of answers among them as responses that are a NO.

Source: Master-RM of "One Token to Fool LLM-as-a-Judge", arXiv:2507.08794, from two notes on it: of a random eighth of
the items a new answer is generated, and its first sentence, which only repeats the task, is added with the label NO.

Items are those of `tasks/verifier_items`, whose field ``worked`` has another answer to the task. They all stay, in
their order, and the new ones follow.

Differs: an item is skipped where the first sentence is the whole answer or contains the reference answer; the published
recipe labels these NO as well. Such items are counted by `describe`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import Annotated

from pydantic import Field, NonNegativeInt

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.templates import marked
from posttrain.errors import UserError
from posttrain.grading.sentences import first_sentence
from posttrain.types import Task


@frozen
class FirstSentences(Tasks):
    """Adds responses that begin and say nothing."""

    tasks: Tasks
    """The source: items of `verifier_items`."""
    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.125
    """Share of the items that one is drawn for."""
    seed: NonNegativeInt = 0
    """Which items are drawn."""

    def load(self) -> Sequence[Task]:
        """The items and the added ones. Raises `UserError` for tasks that are no items, or have no other answer."""
        return [*self.tasks.load(), *self._added[0]]

    def describe(self) -> str:
        """How many were added and skipped, and the description of the source."""
        added, skipped = self._added
        total = len(added) + len(self.tasks.load())
        return (
            f"{total:,} items, of which {len(added):,} are first sentences ({skipped} skipped: complete, or with the "
            f"answer)\n{self.tasks.describe()}"
        )

    @cached_property
    def _added(self) -> tuple[Sequence[Task], int]:
        items = self.tasks.load()
        drawn = [t for t in items if Random(f"first_sentences:{self.seed}:{t.key}").random() < self.share]
        made = [_begun(task) for task in drawn]
        added = [task for task in made if task is not None]
        return added, len(made) - len(added)


def _begun(task: Task) -> Task | None:
    """The item with the first sentence of another answer as its response; None where that has the answer."""
    worked, span, reference = (task.fields.get(name) for name in ("worked", "span", "reference"))
    if not isinstance(task.prompt, str) or not isinstance(span, list) or not isinstance(reference, str):
        raise UserError(f"task {task.key} is no item of a verifier; take tasks of the kind verifier_items")
    if not isinstance(worked, str) or not worked.strip():
        raise UserError(
            f"task {task.key} has no other answer to take the first sentence of; give each row a column "
            "'worked', an answer of another model for example"
        )
    sentence = first_sentence(worked)
    if sentence == worked.strip() or reference in sentence:
        return None
    shown = marked(sentence) if task.fields.get("marks") else sentence
    start, end = span
    return replace(
        task,
        key=f"{task.key}-first",
        prompt=task.prompt[:start] + shown + task.prompt[end:],
        answer="NO",
        domain="first sentence",
        demonstrations=(" NO",),
        fields={**task.fields, "response": sentence, "span": [start, start + len(shown)]},
    )
