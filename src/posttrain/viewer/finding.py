"""Pages that find rollouts: search, rollouts for review, and a selection as JSON lines."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from posttrain.errors import UserError
from posttrain.runs.journal import plain
from posttrain.runs.report import shortened
from posttrain.runs.samples import scored
from posttrain.runs.store import RunStore
from posttrain.runs.summary import correct_at
from posttrain.viewer import questions
from posttrain.viewer.database import Row
from posttrain.viewer.notes import Note, Notes, Rollout, used
from posttrain.viewer.search import ORDERS, Found, Wanted, rollouts
from posttrain.viewer.triage import NOTED, REASONS

Page = dict[str, Any]

PER_PAGE = 30
EXAMPLES = 3
MOST_EXPORTED = 20_000
"""Rollouts of one export."""
MARKED = ("prompt", "completion", "score_explanation")


def search(name: str, folder: Path, wanted: Wanted, *, page: int = 1) -> Page:
    """Rollouts of all steps that match a query, with what matched marked."""
    with RunStore.open(folder, reading=True) as store:
        threshold = correct_at(store.recipe_tree())
        stages = list(store.recipe_tree().get("stages", {}))
    notes = Notes(folder).read()
    mistake = ""
    found = Found([], 0)
    try:
        only = places(notes, wanted.label)
        found = rollouts(folder, wanted, limit=PER_PAGE, offset=(page - 1) * PER_PAGE, only=only)
    except UserError as error:
        mistake = str(error)
    shown = [with_note({**scored(row, threshold), "parts_of": {}}, notes) for row in found.rows]
    if wanted.text and not mistake:
        for row, parts in zip(
            shown, _marked([str(row[wanted.inside] or "") for row in shown], wanted.text), strict=True
        ):
            row["parts_of"] = {wanted.inside: parts}
    return {
        "run": name,
        "wanted": asdict(wanted),
        "given": wanted.given(),
        "mistake": mistake,
        "rollouts": shown,
        "in_all": found.in_all,
        "left_out": found.left_out,
        "pages": {
            "page": page,
            "last": max(1, -(-found.in_all // PER_PAGE)),
            "count": found.in_all,
            "first": min((page - 1) * PER_PAGE + 1, found.in_all),
        },
        "orders": {key: label for key, (label, _) in ORDERS.items()},
        "stages": [(stage, stage) for stage in stages],
        "reviews": {key: reason.label for key, reason in REASONS.items()} | {NOTED: "noted by you"},
        "labels": used(notes),
        "most_exported": MOST_EXPORTED,
    }


def queue(name: str, folder: Path) -> Page:
    """Rollouts for review: for each reason how many rollouts there are, and the first of them."""
    with RunStore.open(folder, reading=True) as store:
        threshold = correct_at(store.recipe_tree())
    kept = Notes(folder)
    notes = kept.read()
    reasons = []
    for key, reason in REASONS.items():
        wanted = Wanted(review=key, order=reason.order)
        found = rollouts(folder, wanted, limit=EXAMPLES)
        reasons.append(
            {
                "key": key,
                "label": reason.label,
                "why": reason.why,
                "in_all": found.in_all,
                "given": wanted.given(),
                "rollouts": [with_note(scored(row, threshold), notes) for row in found.rows],
            }
        )
    noted = [
        {**place._asdict(), "labels": list(note.labels), "note": note.note} for place, note in sorted(notes.items())
    ]
    return {"run": name, "reasons": reasons, "noted": noted, "labels": used(notes), "notes_at": str(kept.path)}


def exported(folder: Path, wanted: Wanted) -> Iterator[str]:
    """All rollouts that match, as lines of JSON, with labels and notes. Raises `UserError` for too many."""
    notes = Notes(folder).read()
    only = places(notes, wanted.label)
    found = rollouts(folder, wanted, limit=MOST_EXPORTED, only=only, seconds=math.inf)
    if found.left_out:
        raise UserError(f"the index of this run is being made, and {found.left_out} steps are not in it; retry later")
    if found.in_all > MOST_EXPORTED:
        raise UserError(
            f"{found.in_all:,} rollouts match, and at most {MOST_EXPORTED:,} are exported at a time; narrow the "
            "search, to some steps for example, or read the Parquet files in the folder rollouts of the run"
        )
    return (json.dumps(plain(with_note(row, notes)), allow_nan=False) + "\n" for row in found.rows)


def places(notes: dict[Rollout, Note], label: str = "") -> list[Rollout]:
    """Rollouts with a note; with a label if one is given."""
    return sorted(place for place, note in notes.items() if not label or label in note.labels)


def with_note(row: Row, notes: dict[Rollout, Note]) -> Row:
    """A rollout with its ``labels`` and ``note``."""
    own = notes.get(Rollout(row["step"], row["group_index"], row["sample"]), Note())
    return {**row, "labels": list(own.labels), "note": own.note}


def label_of(wanted: Wanted) -> Wanted:
    """The query as it is meant: a label selects what is noted."""
    return replace(wanted, review=NOTED) if wanted.label else wanted


def _marked(texts: list[str], expression: str) -> list[list[Page]]:
    """Parts of texts, each with ``found``; a long text is shortened first, as it is shown."""
    return [
        [{"text": text, "found": found} for text, found in own]
        for own in questions.matches([shortened(text) for text in texts], expression)
    ]
