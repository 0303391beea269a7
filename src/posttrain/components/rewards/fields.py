"""Whether the labels of a record are those of the reference record, each field by itself.

Source: the measures of Sonkar et al. 2024, arXiv:2402.05000 (luffycodes/Tutorbot-Spock at fcec4164): each label of a
tutor's turn is compared with the reference's. A record is a JSON object, or lines ``name: value``.

The value is the share of the fields that agree, and every field is a part; an answer is correct where all agree. An
unreadable record, or an absent field, agrees in none.

Differs: nothing known. Other fields, such as the text, are not compared, so that a model may write there what it likes.
"""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.errors import TaskFault
from posttrain.grading.labels import read_record
from posttrain.types import Group, Score, Task, Trajectory


@frozen
class Fields(Reward):
    """Compares fields of records."""

    fields: Annotated[tuple[str, ...], Field(min_length=1, max_length=32)]
    """Names of the fields that are compared."""

    @property
    def needs_answer(self) -> bool:
        """True: the reference record."""
        return True

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a reference that lacks a field."""
        for task in tasks:
            record = read_record(task.answer or "") or {}
            missing = [name for name in self.fields if not record.get(name.lower())]
            if missing:
                raise TaskFault(
                    task.key,
                    f"task {task.key}: the reference record has no '{missing[0]}'; its fields: "
                    f"{', '.join(record) or 'none'}; write it as a JSON object or as lines 'name: value', or leave the "
                    "row out",
                )

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Compare each record with that of its task."""
        return [self._score(trajectory) for trajectory in group]

    def _score(self, trajectory: Trajectory) -> Score:
        theirs = read_record(trajectory.task.answer or "") or {}
        if not all(theirs.get(name.lower()) for name in self.fields):
            return failure(f"task '{trajectory.task.key}': the reference record lacks a field of {self.fields}")
        ours = read_record(trajectory.completion) or {}
        parts = {name: _part(ours.get(name.lower(), ""), theirs[name.lower()]) for name in self.fields}
        wrong = [name for name, part in parts.items() if part.status != "ok"]
        return Score(
            value=1.0 - len(wrong) / len(parts),
            status="wrong" if wrong else "ok",
            answer=", ".join(f"{name} {part.answer or '-'}" for name, part in parts.items()),
            explanation=f"differs in {', '.join(wrong)}" if wrong else "all fields agree",
            parts=parts,
        )


def _part(ours: str, theirs: str) -> Score:
    """The score of one field."""
    right = ours == theirs
    return Score(value=float(right), status="ok" if right else "wrong", answer=ours)
