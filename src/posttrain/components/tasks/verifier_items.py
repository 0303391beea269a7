"""Rated responses of other tasks as tasks for a verifier that writes YES or NO, with the label as answer.

The verifier sees question, reference answer and response. A response that is rated above one half is a YES. Responses
named in `keys` are asked too, for every task, as a NO each, with the key as their domain: the accuracy in such a domain
is 1 less the share of false positives. Other domains are ``right`` and ``wrong``.

Source: the setting of arXiv:2507.08794.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from pydantic import field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.templates import (
    Template,
    check_closed,
    check_places,
    ends_of,
    fill,
    marked,
    places,
    question_of,
    without,
)
from posttrain.errors import UserError
from posttrain.grading.sentences import KEYS
from posttrain.types import Task

__all__ = ["KEYS", "VerifierItems"]

PLACES: Final = ("question", "answer", "response")
TEMPLATE: Final = "{question}\nReference: {answer}\nResponse: {response}\nSame?"


@frozen
class VerifierItems(Tasks):
    """A verifier's prompt for every rated response."""

    tasks: Tasks
    """The source; its tasks have an answer and rated completions."""
    template: Template = TEMPLATE
    """Prompt. Placeholders: question, answer (the reference) and response."""
    marks: bool = False
    """Whether the response stands between marks that it cannot contain, for a verifier that follows instructions; else
    the template's text after it is its mark."""
    keys: tuple[str, ...] = ()
    """Responses without content that are asked as a NO for every task."""

    @field_validator("template")
    @classmethod
    def check_template(cls, template: str) -> str:
        """Refuse a template without the response, or with it twice."""
        if template.count("{response}") != 1 or "answer" not in places(template):
            raise PydanticCustomError("place", "the template must show {{answer}}, and {{response}} once")
        return check_closed(check_places(template, PLACES), ("response",))

    def load(self) -> Sequence[Task]:
        """The items in the order of the responses. Raises `UserError` for a task without answer or responses."""
        return self._loaded

    def describe(self) -> str:
        """The number of items, and the description of the source."""
        return f"{len(self._loaded):,} items for a verifier, {len(self.keys)} keys\n{self.tasks.describe()}"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        items: list[Task] = []
        for task in self.tasks.load():
            if task.answer is None or not task.rated:
                raise UserError(
                    f"task {task.key} has no answer or no rated response; give columns named prompt, answer, "
                    "completion and rating (1 or 0)"
                )
            for number, rated in enumerate(task.rated):
                right = rated.rating > 0.5
                items.append(item(self, task, rated.completion, right, f"r{number}", "right" if right else "wrong"))
            items += [item(self, task, key, False, f"k{n}", f"key {key!r}") for n, key in enumerate(self.keys)]
        return items


def item(how: VerifierItems, task: Task, response: str, right: bool, name: str, domain: str) -> Task:
    """One item; its fields say where the response stands in the prompt, and have another answer to the task."""
    before, _, after = how.template.partition("{response}")
    shown = (
        marked(response) if how.marks else without(response, [end for _, end in ends_of(how.template, ["response"])])
    )
    values = {"question": question_of(task), "answer": task.answer or ""}
    head = fill(before, values)
    label = "YES" if right else "NO"
    return Task(
        key=f"{task.key}-{name}",
        prompt=head + shown + fill(after, values),
        answer=label,
        domain=domain,
        demonstrations=(f" {label}",),
        fields={
            "reference": task.answer,
            "response": response,
            "span": [len(head), len(head) + len(shown)],
            "marks": how.marks,
            "worked": task.demonstrations[0] if task.demonstrations else str(task.fields.get("worked", "")),
        },
    )
