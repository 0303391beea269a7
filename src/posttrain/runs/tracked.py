"""What trackers get of a run: its record, in order, as numbers and samples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from posttrain.components.trackers import Sample, Tracker
from posttrain.errors import UserError
from posttrain.runs.store import RunStore

Row = Mapping[str, Any]

_SHARED = (
    "task_key",
    "prompt",
    "completion",
    "answer",
    "reward",
    "score_status",
    "score_answer",
    "score_explanation",
    "group_index",
    "sample",
    "stop_reason",
)
_PLACE = ("step", "stage", "stage_step")
"""Entries of a line that are no numbers of the step."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """The numbers of a step."""

    step: int
    stage_step: int
    values: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Evaluated:
    """The numbers of a held-out evaluation."""

    step: int
    name: str
    number: int
    """Counted from 1 in the order of the run."""
    values: Mapping[str, float]


Entry = Step | Evaluated


def step_entry(metrics: Row, timing: Row) -> Step:
    """A step from its lines in ``metrics.jsonl`` and ``timing.jsonl``."""
    values = {f"train/{name}": value for name, value in _numbers(metrics).items()}
    values |= {f"time/{name}": value for name, value in _numbers(timing).items()}
    return Step(step=metrics["step"], stage_step=metrics["stage_step"], values=values)


def evaluation_entry(number: int, summary: Row) -> Evaluated:
    """An evaluation from its line in ``evals.jsonl``."""
    values = _numbers(summary)
    if interval := summary.get("accuracy_interval"):
        values |= {"accuracy_low": float(interval[0]), "accuracy_high": float(interval[1])}
    for k, value in (summary.get("pass_at_k") or {}).items():
        values |= {f"pass_at_{k}": float(value)} if value is not None else {}
    for part in ("searched", "candidates"):
        values |= {f"{part}/{name}": value for name, value in _numbers(summary.get(part) or {}).items()}
    named = {f"eval/{name}": value for name, value in values.items()}
    return Evaluated(step=summary["step"], name=summary["name"], number=number, values=named)


def summary_values(summary: Row) -> dict[str, float]:
    """The numbers of ``summary.json``."""
    return _numbers(summary)


def _numbers(entries: Row) -> dict[str, float]:
    """The entries that are numbers; truth values and what was not measured are left out."""
    return {
        name: float(value)
        for name, value in entries.items()
        if name not in _PLACE and isinstance(value, int | float) and not isinstance(value, bool)
    }


def recorded_entries(store: RunStore, step: int = 0, evaluations: int = 0) -> Iterator[Entry]:
    """The entries of a record after a step and a number of evaluations, in the order of the run."""
    timing = {entry["step"]: entry for entry in store.timing() if "seconds_total" in entry}
    numbered = list(enumerate(store.evaluations(), start=1))
    found: list[Entry] = [evaluation_entry(number, summary) for number, summary in numbered if number > evaluations]
    found += [step_entry(line, timing.get(line["step"], {})) for line in store.metrics() if line["step"] > step]
    yield from sorted(found, key=lambda entry: (entry.step, isinstance(entry, Evaluated)))


def samples_of(store: RunStore, entry: Entry, tracker: Tracker) -> list[Sample]:
    """The samples that a tracker gets with an entry; none for a step between its tables, or whose table is gone."""
    most = tracker.samples
    if most == 0 or (isinstance(entry, Step) and not tracker.takes_rollouts(entry.stage_step)):
        return []
    try:
        if isinstance(entry, Step):
            columns = (*_SHARED, "dropped_reason", "advantage")
            rows = store.rollouts(entry.step, columns) if entry.step in store.rollout_steps() else []
        else:
            where = "true" if most is None else "sample = 0"
            rows = store.evaluation_rows(entry.step, entry.name, _SHARED, where)
    except UserError:
        return []  # the record states what was deleted
    return [_sample(row, tracker.longest_text) for row in rows[:most]]


def _sample(row: Row, longest: int | None) -> Sample:
    """A row as a sample, its texts cut to `longest` characters."""
    advantages = [value for value in row.get("advantage") or () if value is not None]
    return Sample(
        task=row["task_key"],
        prompt=_cut(row["prompt"] or "", longest),
        completion=_cut(row["completion"] or "", longest),
        answer=None if row["answer"] is None else _cut(row["answer"], longest),
        reward=row["reward"],
        advantage=sum(advantages) / len(advantages) if advantages else None,
        status=row["score_status"],
        extracted=None if row["score_answer"] is None else _cut(row["score_answer"], longest),
        explanation=None if row["score_explanation"] is None else _cut(row["score_explanation"], longest),
        group=row["group_index"],
        sample=row["sample"],
        stop_reason=row["stop_reason"],
        dropped=row.get("dropped_reason"),
    )


def _cut(text: str, longest: int | None) -> str:
    """A text of at most `longest` characters, which states what is missing."""
    if longest is None or len(text) <= longest:
        return text
    return f"{text[:longest]}… ({len(text) - longest:,} more characters)"


def total(entries: Sequence[Entry]) -> str:
    """``12 steps and 3 evaluations``."""
    steps = sum(isinstance(entry, Step) for entry in entries)
    evaluations = len(entries) - steps
    return f"{steps} step{'' if steps == 1 else 's'} and {evaluations} evaluation{'' if evaluations == 1 else 's'}"
