"""The reference record of a task preferred to a record of the model's own that differs in a field.

Source: Sonkar et al. 2024, arXiv:2402.05000 (luffycodes/Tutorbot-Spock at fcec4164, preprocess_dpo_data.py). For each
prompt the reference is chosen, and the model's own answer rejected if, in this order, it is no readable record, lacks a
field or has an empty one, or differs in the first field, the second, ... A prompt whose fields all agree gives no pair:
other texts of the record are not compared. A reference that lacks a field gives none either. What differs is in the
pair's field ``differs``.

A record is a JSON object, or lines ``name: value``. An answer that was cut at the limit is rejected as it is, without
an end token.

Differs: the release compares one answer a prompt; of several, each different one gives a pair, up to `most`.
"""

from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.pairings import NOTHING_SCORED, Paired, Pairing, Rollouts
from posttrain.grading.labels import first_difference, read_record
from posttrain.types import Preference, Task


@frozen
class FieldsDiffer(Pairing):
    """Pairs the reference with answers that differ in a field."""

    fields: Annotated[tuple[str, ...], Field(min_length=1, max_length=32)]
    """Names of the fields that are compared, in this order."""
    most: PositiveInt = 1
    """Most pairs of a task."""

    async def pair(self, rollouts: Rollouts) -> Paired:
        """Pairs of the reference with the first answers that differ from it."""
        reference = reference_of(rollouts.task)
        record = None if reference is None else read_record(reference)
        if reference is None or record is None or not all(record.get(name.lower()) for name in self.fields):
            return Paired(reason="the reference lacks a field")
        if not any(t.completion.strip() for t in rollouts.trajectories):
            return Paired(reason=NOTHING_SCORED)
        pairs: dict[str, Preference] = {}
        for trajectory in rollouts.trajectories:
            text = trajectory.completion
            what = first_difference(text, reference, self.fields)
            if what is None or not text.strip() or trajectory.failure:
                continue
            cut = {"cut": True} if trajectory.stop_reason == "length" else {}
            origin = [{"writer": "data"}, rollouts.origin(trajectory)]
            about = {"rule": self.kind, "differs": what, "origin": origin, **cut}
            pairs.setdefault(text, Preference(chosen=reference, rejected=text, fields=about))
        if not pairs:
            return Paired(reason="all fields agree")
        return Paired(pairs=tuple(pairs.values())[: self.most])


def reference_of(task: Task) -> str | None:
    """The reference text of a task: its first demonstration, or else its answer."""
    return task.demonstrations[0] if task.demonstrations else task.answer
