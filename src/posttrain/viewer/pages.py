"""The data of each page, rendered as HTML by a template or as JSON with ``?as=json``."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from posttrain.errors import UserError
from posttrain.runs.curves import curves
from posttrain.runs.readings import readings
from posttrain.runs.samples import judged, outcome, show_pictures
from posttrain.runs.store import REPAIRS, RunStore
from posttrain.runs.summary import correct_at, describe_gain, summarize
from posttrain.runs.token_text import TokenTexts
from posttrain.statistics.paired import paired_difference
from posttrain.viewer import questions
from posttrain.viewer.differences import difference
from posttrain.viewer.questions import ORDERS, Wanted
from posttrain.viewer.tokens import MOST_TOKENS, colourings, marked

Page = dict[str, Any]

PER_PAGE = 30
STEPS_PER_PAGE = 100
MOST_EVENTS = 200
OUTCOMES = {"lost": "Lost", "gained": "Learned", "wrong": "Wrong both times", "right": "Right both times"}


class NotThere(UserError):
    """There is no such page."""


def runs(found: Mapping[str, Path]) -> Page:
    """Every run in a line."""
    return {"runs": [_line(name, folder) for name, folder in found.items()]}


def run(name: str, folder: Path, *, page: int = 1) -> Page:
    """A run: how it went, and its steps, the newest first."""
    with RunStore.open(folder, reading=True) as store:
        metrics, events, evaluations = store.metrics(), store.events(), store.evaluations()
        summary = summarize(store)
        recorded = set(store.rollout_steps())
        timing = {entry["step"]: entry for entry in store.timing() if entry.get("seconds_total") is not None}
        recipe = (folder / "recipe.yaml").read_text(encoding="utf-8", errors="replace")
        history = [entry for entry in store.history() if entry["kind"] in REPAIRS]
    newest = metrics[::-1]
    shown = newest[(page - 1) * STEPS_PER_PAGE : page * STEPS_PER_PAGE]
    steps = [
        {
            "step": entry["step"],
            "stage": entry["stage"],
            "recorded": entry["step"] in recorded,
            "readings": [
                {"name": r.name, "value": r.value, "more": list(r.more)}
                for r in readings(entry, timing.get(entry["step"], {}))
            ],
            "solved": entry.get("solved"),
        }
        for entry in shown
    ]
    return {
        "run": name,
        "summary": summary,
        "gain": describe_gain(summary["gain"]) if summary["gain"] else "",
        "charts": curves(metrics, evaluations),
        "steps": steps,
        "pages": _pages(page, len(newest), STEPS_PER_PAGE),
        "events": [*events, *history][-MOST_EVENTS:][::-1],
        "evaluations": _evaluations(evaluations),
        "finished": (folder / "summary.json").is_file(),
        "recipe": recipe,
        "last": len(metrics),
    }


def position(folder: Path) -> Page:
    """How far a run has come, for pages that are open."""
    with RunStore.open(folder, reading=True) as store:
        return {"steps": len(store.metrics()), "finished": (folder / "summary.json").is_file()}


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


def group(name: str, folder: Path, number: int, index: int, *, colour: str = "", everything: bool = False) -> Page:
    """The attempts of a group, token by token."""
    rows = questions.group(folder, number, index)
    if not rows:
        with RunStore.open(folder, reading=True) as store:
            raise NotThere(f"step {number} of the run {name} has no group {index}; {_range(store.rollout_steps())}")
    with RunStore.open(folder, reading=True) as store:
        tree = store.recipe_tree()
        threshold, roles = correct_at(tree), list(tree.get("models", {}))
        known = colourings(rows, roles)
        chosen = next((c for c in known if c.name == colour), known[0] if known else None)
        texts = TokenTexts.find(folder)
        tokens = marked(rows, texts, chosen, roles=roles, most=None if everything else MOST_TOKENS)
        attempts = [
            {**_told(row, threshold), "segments": own["segments"], "left_out": own["left_out"], "length": own["length"]}
            for row, own in zip(rows, tokens, strict=True)
        ]
        first = [dict(rows[0])]
        show_pictures(store, first)
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
        "pictures": first[0]["pictures"],
        "attempts": attempts,
        "parts": sorted({part for row in rows for part in row["parts"] or {}}),
        "colours": [{"name": c.name, "label": c.label} for c in known],
        "colour": chosen.name if chosen else "",
        "signed": bool(chosen and chosen.signed),
        "texts": texts is not None,
        "before": indices[place - 1] if place else None,
        "after": indices[place + 1] if place + 1 < len(indices) else None,
    }


def search(name: str, folder: Path, wanted: Wanted, *, page: int = 1) -> Page:
    """Attempts of all steps that fit."""
    with RunStore.open(folder, reading=True) as store:
        threshold = correct_at(store.recipe_tree())
        stages = list(store.recipe_tree().get("stages", {}))
    mistake = ""
    found: list[questions.Row] = []
    in_all = 0
    try:
        found, in_all = questions.attempts(folder, wanted, limit=PER_PAGE, offset=(page - 1) * PER_PAGE)
    except UserError as error:
        mistake = str(error)
    return {
        "run": name,
        "wanted": asdict(wanted),
        "given": wanted.given(),
        "mistake": mistake,
        "attempts": [judged(row, threshold) for row in found],
        "in_all": in_all,
        "pages": _pages(page, in_all, PER_PAGE),
        "orders": {key: label for key, (label, _) in ORDERS.items()},
        "stages": [(stage, stage) for stage in stages],
    }


def solved(name: str, folder: Path, by: Literal["task", "domain"]) -> Page:
    """How often each task, or kind of task, was answered right, over the steps."""
    return {"run": name, "by": by, **questions.solved(folder, by, most_rows=100, most_columns=60)}


def task(name: str, folder: Path, key: str) -> Page:
    """All answers to one task: held out, with what changed from one evaluation to the next, and in training."""
    tried, answered = questions.history(folder, key)
    if not tried and not answered:
        raise NotThere(f"the run {name} has recorded no answer to a task {key}")
    with RunStore.open(folder, reading=True) as store:
        threshold = correct_at(store.recipe_tree())
        first = [dict((answered or tried)[0])]
        show_pictures(store, first)
    told: list[Page] = []
    for row in answered:
        before = told[-1]["completion"] if told else None
        parts = difference(before, row["completion"]) if before is not None else []
        told.append({**judged(row, threshold), "changed": [_plain(part) for part in parts]})
    return {
        "run": name,
        "task": key,
        **{column: first[0][column] for column in ("prompt", "answer", "domain", "pictures")},
        "answers": told,
        "attempts": [judged(row, threshold) for row in tried[:MOST_EVENTS]],
        "tried": len(tried),
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
    sure = [pair for pair in pairs if "not judged" not in (pair["before"]["badge"], pair["after"]["badge"])]
    change = None
    if sure:
        paired = paired_difference([p["before"]["right"] for p in sure], [p["after"]["right"] for p in sure])
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
        "choices": [{"run": name, "evaluations": _evaluations_of(folder)} for name, folder in found.items()],
    }


def _line(name: str, folder: Path) -> Page:
    """A run among others; from its summary if it has ended."""
    shown = ("recipe", "steps", "accuracy_before", "accuracy_after", "seconds", "gain")
    with RunStore.open(folder, reading=True) as store:
        summary, history = store.summary(), store.history()
        finished = bool(summary)
        if not finished:
            metrics, evaluations = store.metrics(), store.evaluations()
            first, last = (evaluations[i] if evaluations else {} for i in (0, -1))
            summary = {
                "recipe": store.recipe_tree().get("name"),
                "steps": len(metrics),
                "accuracy_before": first.get("accuracy"),
                "accuracy_after": last.get("accuracy") if len(evaluations) > 1 else None,
            }
    return {
        "name": name,
        "started": history[0]["time"] if history else "",
        "finished": finished,
        **{key: summary.get(key) for key in shown},
    }


def _side(found: Mapping[str, Path], name: str, number: int) -> Page:
    """One evaluation of one run, with its answers."""
    if name not in found:
        raise NotThere(f"there is no run {name} here; there are: {', '.join(found)}")
    with RunStore.open(found[name], reading=True) as store:
        evaluations = store.evaluations()
        if not evaluations:
            raise NotThere(f"the run {name} has not been evaluated, so there are no held-out answers to look at")
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
        "answers": {key: judged(row, threshold) for key, row in answered.items()},
    }


def _evaluations_of(folder: Path) -> list[Page]:
    with RunStore.open(folder, reading=True) as store:
        return _evaluations(store.evaluations())


def _evaluations(entries: list[dict[str, Any]]) -> list[Page]:
    """Number, step, name and accuracy of each."""
    return [
        {"number": i, "step": e["step"], "name": e["name"], "accuracy": e["accuracy"]} for i, e in enumerate(entries)
    ]


def _told(row: Mapping[str, Any], threshold: float) -> Page:
    """What stands beside the tokens of an attempt."""
    own = judged(row, threshold)
    kept = ("sample", "parent", "version", "completion", "stop_reason", "reward", "score_status", "score_answer")
    told = {key: own[key] for key in (*kept, "score_explanation", "dropped_reason", "info", "right", "badge")}
    return {**told, "parts": row["parts"] or {}}


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before


def _plain(part: Any) -> Page:
    return {"kind": part.kind, "text": part.text}


def _range(steps: list[int]) -> str:
    """Which steps there are to look at."""
    if not steps:
        return "no attempts are recorded, as in stages that do not sample"
    return f"attempts are recorded of {len(steps)} steps from {steps[0]} to {steps[-1]}"


def _pages(page: int, count: int, size: int) -> Page:
    """Where one is among many."""
    last = max(1, -(-count // size))
    return {"page": page, "last": last, "count": count, "first": min((page - 1) * size + 1, count)}
