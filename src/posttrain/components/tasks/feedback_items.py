"""Items for a judge that answers Yes or No to a response and a principle, from written feedback of several annotators.

Source: RLBFF, arXiv:2509.21319; `posttrain.grading.feedback` has the rules. The feedback on the demonstration of a task
is its field ``feedback``, a list with one object for each annotator:

    {"text": "Short, but rude.", "principles": [{"principle": "polite", "label": "no", "evidence": "rude"}, ...]}

Pairs of response and principle without evidence or consensus are left out; they are never a No.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.templates import Template, check_closed, check_places, fill_closed, marked, places, question_of
from posttrain.errors import UserError
from posttrain.grading.feedback import agreed, entries
from posttrain.types import Task

PLACES = ("question", "response", "raw_response", "principle")
TEMPLATE = "{question}\n{raw_response}\n{principle}?"


@frozen
class FeedbackItems(Tasks):
    """A judge's prompt for every response and principle that annotators agree on."""

    tasks: Tasks
    """The source: tasks with a demonstration, and feedback on it."""
    template: Template = TEMPLATE
    """Prompt. Placeholders: question, principle, and response (between marks) or raw_response, which the text
    after it marks."""
    evidence: Annotated[float, Field(ge=0.0, le=100.0)] = 60.0
    """A quotation must match the annotator's text by more than this; 0 requires none."""
    similar: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.8
    """Similarity above which two annotators have the same principle; 0 takes each one's own, without consensus."""

    @field_validator("template")
    @classmethod
    def check_template(cls, template: str) -> str:
        """Refuse a template without response or principle."""
        if not places(template) & {"response", "raw_response"} or "principle" not in places(template):
            raise PydanticCustomError(
                "place", "the template must show {{principle}}, and {{response}} or {{raw_response}}"
            )
        return check_closed(check_places(template, PLACES), ("raw_response",))

    def load(self) -> Sequence[Task]:
        """The items, in the order of the responses. Raises `UserError` where nothing is left."""
        return self._loaded

    def describe(self) -> str:
        """The number of items, and the description of the source."""
        yes = sum(task.answer == "Yes" for task in self._loaded)
        return f"{len(self._loaded):,} items for a judge, {yes:,} of them a Yes\n{self.tasks.describe()}"

    @cached_property
    def _loaded(self) -> Sequence[Task]:
        items = [item for task in self.tasks.load() for item in self._items(task)]
        if not items:
            raise UserError(
                "no response has a principle with evidence that its annotators agree on; give rows with prompt, "
                "completion and feedback (at least two annotators each), or lower tasks.similar and tasks.evidence"
            )
        return items

    def _items(self, task: Task) -> list[Task]:
        feedback = task.fields.get("feedback")
        if not task.demonstrations or not isinstance(feedback, Sequence) or isinstance(feedback, str):
            return []
        own = [one for one in feedback if isinstance(one, Mapping)]
        if self.similar:
            found = agreed(own, evidence=self.evidence, similar=self.similar)
        else:
            found = [entry for annotator in own for entry in entries(annotator, self.evidence)]
        response = task.demonstrations[0]
        values = {"question": question_of(task), "response": marked(response)}
        return [
            replace(
                task,
                key=f"{task.key}-{number}",
                prompt=fill_closed(self.template, {**values, "principle": entry.principle}, {"raw_response": response}),
                answer="Yes" if entry.satisfied else "No",
                domain=entry.principle,
                demonstrations=(" Yes" if entry.satisfied else " No",),
                fields={"principle": entry.principle},
            )
            for number, entry in enumerate(found)
        ]
