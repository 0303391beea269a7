"""The data of each page, rendered as HTML by a template or as JSON with ``?as=json``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from posttrain.errors import UserError
from posttrain.runs.curves import curves
from posttrain.runs.reading import DOCUMENT, read_own
from posttrain.runs.samples import outcome, scored, show_pictures
from posttrain.runs.state import state_of
from posttrain.runs.store import REPAIRS, RunStore
from posttrain.runs.summary import correct_at, describe_gain, summarize
from posttrain.runs.token_text import TokenTexts
from posttrain.statistics.paired import paired_difference
from posttrain.viewer import questions
from posttrain.viewer.branches import add_turns, as_tree
from posttrain.viewer.database import Row
from posttrain.viewer.differences import difference
from posttrain.viewer.facts import facts
from posttrain.viewer.listing import choices, line, lines
from posttrain.viewer.listing import evaluations as described
from posttrain.viewer.notes import Note, Notes, Rollout
from posttrain.viewer.steps import table
from posttrain.viewer.texts import of_task
from posttrain.viewer.tokens import MOST_TOKENS, colourings, marked

Page = dict[str, Any]

PER_PAGE = 30
STEPS_PER_PAGE = 100
PER_PART = 16
"""Rollouts of a group that are loaded at a time."""
MOST_EVENTS = 200
OUTCOMES = {
    "lost": "Lost",
    "gained": "Learned",
    "wrong": "Wrong both times",
    "right": "Right both times",
    "unscored": "Not scored",
}


class NotThere(UserError):
    """The page does not exist."""


def runs(found: Mapping[str, Path]) -> Page:
    """One line per run."""
    return {"runs": [line(name, folder) for name, folder in found.items()]}


def run(name: str, folder: Path, *, page: int = 1, sort: str = "step", rising: bool = False) -> Page:
    """A run: its summary, curves, evaluations, events, and its steps with the newest first."""
    with RunStore.open(folder, reading=True) as store:
        metrics, events, evaluations = store.metrics(), store.events(), store.evaluations()
        summary = summarize(store, metrics)
        recorded = set(store.rollout_steps())
        notes = Notes(folder)
        timing = {entry["step"]: entry for entry in store.timing() if entry.get("seconds_total") is not None}
        recipe = read_own(folder / "recipe.yaml", DOCUMENT).decode("utf-8", "replace")
        state = state_of(folder, store.history())
        history = [entry for entry in store.history() if entry["kind"] in REPAIRS]
    part = slice((page - 1) * STEPS_PER_PAGE, page * STEPS_PER_PAGE)
    ordered = table(metrics, timing, recorded, sort=sort, rising=rising, part=part)
    return {
        "run": name,
        "summary": summary,
        "gain": describe_gain(summary["gain"]) if summary["gain"] else "",
        "charts": curves(metrics, evaluations),
        "steps": ordered.pop("rows"),
        "pages": _pages(page, ordered.pop("count"), STEPS_PER_PAGE),
        **ordered,
        "notes_at": str(notes.path) if notes.path.is_file() else "",
        "events": [*events, *history][-MOST_EVENTS:][::-1],
        "evaluations": described(evaluations),
        "state": state.name,
        "why": state.why,
        "recipe": recipe,
        "last": len(metrics),
    }


def position(folder: Path) -> Page:
    """The number of steps of a run, which open pages poll."""
    with RunStore.open(folder, reading=True):
        return {"steps": lines(folder / "metrics.jsonl"), "finished": (folder / "summary.json").is_file()}


def step(name: str, folder: Path, number: int) -> Page:
    """The groups of a step."""
    found = questions.groups(folder, number)
    with RunStore.open(folder, reading=True) as store:
        steps = store.rollout_steps()
        events = [entry for entry in store.events() if entry["step"] == number]
        own = next((entry for entry in store.metrics() if entry["step"] == number), None)
    if not found and own is None:
        raise NotThere(f"the run {name} has no step {number}; {_range(steps)}")
    return {
        "run": name,
        "step": number,
        "stage": own["stage"] if own else found[0]["stage"],
        "metrics": {key: v for key, v in (own or {}).items() if key not in ("step", "stage", "stage_step")},
        "groups": found,
        "events": events,
        "before": max((s for s in steps if s < number), default=None),
        "after": min((s for s in steps if s > number), default=None),
    }


def group(
    name: str, folder: Path, number: int, index: int, *, colour: str = "", everything: bool = False, first: int = 0
) -> Page:
    """The rollouts of a group, token by token: `PER_PART` of them from the one in place `first` on.

    The tokens of a prompt that all of them share are given once, as ``opening``.
    """
    rows = questions.group(folder, number, index, limit=PER_PART, offset=first)
    size = len(questions.samples(folder, number, index))
    if not rows:
        with RunStore.open(folder, reading=True) as store:
            raise NotThere(f"step {number} of the run {name} has no group {index}; {_range(store.rollout_steps())}")
    with RunStore.open(folder, reading=True) as store:
        tree = store.recipe_tree()
        threshold, roles = correct_at(tree), list(tree.get("models", {}))
        available = colourings(rows, roles)
        imitated = all(any(s["actor"] == "demonstration" for s in row["segments"]) for row in rows)
        usual = "surprise" if imitated else ""  # their advantages are all 1
        chosen = next((c for name in (colour, usual) for c in available if c.name == name), next(iter(available), None))
        texts = TokenTexts.find(folder)
        tokens = marked(rows, texts, chosen, roles=roles, most=None if everything else MOST_TOKENS)
        rollouts = [
            {**_score_of(row, threshold), **{key: own[key] for key in ("segments", "left_out", "length")}}
            for row, own in zip(rows, tokens, strict=True)
        ]
        stage = tree.get("stages", {}).get(rows[0]["stage"])
        own = stage.get("rollout") if isinstance(stage, dict) else None
        add_turns(rollouts, rows, own if isinstance(own, dict) else {})
        opening = _shared_prompt(rollouts, rows)
        rollouts = as_tree(rollouts, rows, opened=bool(opening))
        pictured = [dict(rows[0])]
        show_pictures(store, pictured)
    notes = _add_notes(rollouts, folder, number, index)
    indices = [own["group_index"] for own in questions.groups(folder, number)]
    place = indices.index(index)
    return {
        "run": name,
        "step": number,
        "group": index,
        "task": rows[0]["task_key"],
        "domain": rows[0]["domain"],
        "prompt": rows[0]["prompt"],
        "answer": rows[0]["answer"],
        "pictures": pictured[0]["pictures"],
        "opening": opening,
        "rollouts": rollouts,
        "size": size,
        "first": first,
        "next": first + PER_PART if first + PER_PART < size else None,
        "last": min(first + 2 * PER_PART, size),
        "imitated": imitated,
        **notes,
        "parts": sorted({part for row in rows for part in row["parts"] or {}}),
        "colours": [{"name": c.name, "label": c.label} for c in available],
        "colour": chosen.name if chosen else "",
        "signed": bool(chosen and chosen.signed),
        "texts": texts is not None,
        "before": indices[place - 1] if place else None,
        "after": indices[place + 1] if place + 1 < len(indices) else None,
    }


def place_in_group(folder: Path, rollout: Rollout) -> int | None:
    """The place of a rollout in its group, in which some may be missing; None if it is not in the record."""
    samples = questions.samples(folder, rollout.step, rollout.group)
    return samples.index(rollout.sample) if rollout.sample in samples else None


def solved(name: str, folder: Path, by: Literal["task", "domain"]) -> Page:
    """Share of correct rollouts by step, of each task or each domain."""
    return {"run": name, "by": by, **questions.solved(folder, by, most_rows=100, most_columns=60)}


def task(name: str, folder: Path, key: str) -> Page:
    """All answers to one task: held-out ones with changes between evaluations, and rollouts in training."""
    tried, answered, left_out = questions.history(folder, key)
    texts = of_task(folder, key)
    if not tried and not answered and not texts:
        raise NotThere(f"the run {name} has recorded no answer to a task {key}")
    with RunStore.open(folder, reading=True) as store:
        threshold = correct_at(store.recipe_tree())
        first = [dict((answered or tried or questions.given_of(folder, key, most=1))[0])]
        show_pictures(store, first)
    shown: list[Page] = []
    for row in answered:
        before = shown[-1]["completion"] if shown else None
        parts = difference(before, row["completion"]) if before is not None else []
        shown.append({**scored(row, threshold), "changed": [_plain(part) for part in parts]})
    return {
        "run": name,
        "task": key,
        **{column: first[0][column] for column in ("prompt", "answer", "domain", "pictures")},
        "answers": shown,
        "texts": texts,
        "rollouts": [scored(row, threshold) for row in tried[:MOST_EVENTS]],
        "tried": len(tried),
        "left_out": left_out,
    }


def compared(
    found: Mapping[str, Path], first: tuple[str, int], second: tuple[str, int], *, kind: str = "", page: int = 1
) -> Page:
    """Held-out answers of two evaluations, of one run or of two, task by task."""
    sides = [_side(found, name, number) for name, number in (first, second)]
    before, after = (side.pop("answers") for side in sides)
    shared = [key for key in after if key in before]
    pairs = [{"before": before[key], "after": after[key], "task": key} for key in shared]
    for pair in pairs:
        pair["outcome"] = outcome(pair["before"], pair["after"])
    counts = {name: sum(pair["outcome"] == name for pair in pairs) for name in OUTCOMES}
    both_scored = [pair for pair in pairs if pair["outcome"] != "unscored"]
    change = None
    if both_scored:
        right_before, right_after = ([p[side]["right"] for p in both_scored] for side in ("before", "after"))
        paired = paired_difference(right_before, right_after)
        change = {"value": paired.value, "interval": list(paired.interval), "tasks": paired.tasks}
    kind = kind or next((name for name, count in counts.items() if count), "lost")
    chosen = [pair for pair in pairs if pair["outcome"] == kind]
    shown = chosen[(page - 1) * PER_PAGE : page * PER_PAGE]
    for pair in shown:
        parts = difference(pair["before"]["completion"], pair["after"]["completion"])
        pair["changed"] = [_plain(part) for part in parts]
        pair["gain"] = _minus(pair["after"]["reward"], pair["before"]["reward"])
    return {
        "sides": sides,
        "shared": len(shared),
        "only": [len(before) - len(shared), len(after) - len(shared)],
        "counts": counts,
        "outcomes": OUTCOMES,
        "kind": kind,
        "change": change,
        "pairs": shown,
        "pages": _pages(page, len(chosen), PER_PAGE),
        "choices": choices(found),
    }


def _side(found: Mapping[str, Path], name: str, number: int) -> Page:
    """One evaluation of one run, with its answers."""
    if name not in found:
        raise NotThere(f"there is no run {name} here; there are: {', '.join(found)}")
    with RunStore.open(found[name], reading=True) as store:
        evaluations = store.evaluations()
        if not evaluations:
            raise NotThere(f"the run {name} has not been evaluated, so there are no held-out answers to show")
        if not -len(evaluations) <= number < len(evaluations):
            raise NotThere(f"the run {name} has {len(evaluations)} evaluations, numbered from 0; there is no {number}")
        chosen = evaluations[number]
        threshold = correct_at(store.recipe_tree())
    answered = questions.answers(found[name], chosen["step"], chosen["name"])
    return {
        "run": name,
        "number": number % len(evaluations),
        "step": chosen["step"],
        "name": chosen["name"],
        "accuracy": chosen["accuracy"],
        "interval": chosen["accuracy_interval"],
        "answers": {key: scored(row, threshold) for key, row in answered.items()},
    }


def _score_of(row: Mapping[str, Any], threshold: float) -> Page:
    """What is shown beside the tokens of a rollout: its score, stop reason and weights."""
    own = scored(row, threshold)
    kept = ("sample", "parent", "version", "completion", "stop_reason", "reward", "score_status", "score_answer")
    shown = {key: own[key] for key in (*kept, "score_explanation", "dropped_reason", "has_score", "right", "badge")}
    return {**shown, "parts": row["parts"] or {}, "info": facts(row["info"])}


def _add_notes(rollouts: list[Page], folder: Path, step: int, group: int) -> Page:
    """Add labels and notes to rollouts of a group; returns where they are kept, and whether one may write there."""
    kept = Notes(folder)
    notes = kept.read()
    for rollout in rollouts:
        own = notes.get(Rollout(step, group, rollout["sample"]), Note())
        rollout |= {"labels": list(own.labels), "note": own.note}
    return {"notes_at": str(kept.path), "writable": kept.writable}


def _shared_prompt(rollouts: list[Page], rows: list[Row]) -> list[Page]:
    """Take the prompt's pieces out of all rollouts, if they are the same, and return them; else none."""
    starts = [row["segments"][0] if row["segments"] else {} for row in rows]
    prompts = {
        tuple(row["token_ids"][: start["length"]]) if start.get("actor") == "prompt" else (-1,)
        for row, start in zip(rows, starts, strict=True)
    }
    if len(prompts) > 1 or (-1,) in prompts or not all(rollout["segments"] for rollout in rollouts):
        return []
    segments = [rollout["segments"].pop(0) for rollout in rollouts]
    pieces: list[Page] = segments[0]["pieces"]
    return pieces


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def _plain(part: Any) -> Page:
    return {"kind": part.kind, "text": part.text}


def _range(steps: list[int]) -> str:
    """Which steps have recorded rollouts, as a clause."""
    if not steps:
        return "no rollouts are recorded, as in stages that do not sample"
    return f"rollouts are recorded of {len(steps)} steps from {steps[0]} to {steps[-1]}"


def _pages(page: int, count: int, size: int) -> Page:
    """The position of a page among all pages."""
    last = max(1, -(-count // size))
    return {"page": page, "last": last, "count": count, "first": min((page - 1) * size + 1, count)}
