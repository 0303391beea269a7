"""What a curriculum chose and why, and the pairs that a run learned from."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from posttrain.errors import PosttrainError
from posttrain.errors.foreign import parse_json
from posttrain.runs.charts import Chart, Series, draw
from posttrain.runs.curves import Entry
from posttrain.runs.reading import DOCUMENT, read_own
from posttrain.runs.store import RunStore
from posttrain.viewer import picks, planes
from posttrain.viewer.index import Source, with_index

Page = dict[str, Any]
TASKS_PER_PAGE = 50
PAIRS_PER_PAGE = 20
MOST_BORN = 200


def curriculum(name: str, folder: Path, order: str = "visits", *, page: int = 1) -> Page:
    """The choices of a run by arm, their difficulty, what was predicted of them, and every task with its reason."""
    with RunStore.open(folder, reading=True) as store:
        metrics = store.metrics()
    pool = _pool(folder)
    found, left_out = with_index(folder, lambda sources: _found(sources, order, page))
    total = found["totals"]
    unseen = None if pool is None else max(pool - total["tasks"] + found["in_all_born"], 0)
    return {
        "run": name,
        **found,
        "pool": pool,
        "unseen": unseen,
        "probe_tokens": sum(_numbers(metrics, "probe_tokens")),
        "sampled_tokens": sum(_numbers(metrics, "sampled_tokens")),
        "charts": [*_difficulty(found["difficulty"]), *_reported(metrics)],
        "simplex": planes.simplex(found["arms"]),
        "front": planes.front(folder),
        "order": order,
        "orders": {key: title for key, (title, _) in picks.ORDERS.items()},
        "pages": _pages(page, total["tasks"], TASKS_PER_PAGE),
        "left_out": left_out,
    }


def pairs(name: str, folder: Path, *, page: int = 1) -> Page:
    """The pairs that a run learned from, each with where both texts part, and why tasks have none."""
    with RunStore.open(folder, reading=True) as store:
        notes = [event for event in store.events() if event["kind"] == "note" and " pairs " in event["message"]]
    first = (page - 1) * PAIRS_PER_PAGE

    def both(sources: Sequence[Source]) -> tuple[list[Page], list[Page]]:
        return picks.rules(sources), picks.pairs(sources, limit=PAIRS_PER_PAGE, offset=first)

    (rules, rows), left_out = with_index(folder, both)
    count = sum(rule["pairs"] for rule in rules)
    return {
        "run": name,
        "rules": rules,
        "pairs": [{**row, **parted(row["chosen"] or "", row["rejected"] or "")} for row in rows],
        "notes": notes,
        "in_all": count,
        "pages": _pages(page, count, PAIRS_PER_PAGE),
        "left_out": left_out,
    }


def parted(chosen: str, rejected: str) -> Page:
    """What two texts begin with alike, and what each goes on with."""
    pairs = zip(chosen, rejected, strict=False)
    size = next((place for place, (a, b) in enumerate(pairs) if a != b), min(len(chosen), len(rejected)))
    return {"alike": chosen[:size], "chosen": chosen[size:], "rejected": rejected[size:], "parts_at": size}


def ancestry(rows: Sequence[Mapping[str, Any]]) -> list[Page]:
    """Born tasks with their lineage, each after its parent where that is among them; ``level`` is how deep it is."""
    known = {row["key"]: {**row, **_lineage(row)} for row in rows}
    children: dict[str, list[str]] = {}
    for key, row in known.items():
        children.setdefault(str(row.get("parent")), []).append(key)
    waiting = [(key, 0) for key, row in reversed(known.items()) if row.get("parent") not in known]
    ordered = []
    while waiting:
        key, level = waiting.pop()
        ordered.append({**known[key], "level": level})
        waiting += [(child, level + 1) for child in reversed(children.get(key, []))]
    return ordered


def _pool(folder: Path) -> int | None:
    """How many tasks the stage chooses from, as the newest checkpoint within a stage has it; None without one."""
    for checkpoint in sorted((folder / "checkpoints").glob("step_*"), reverse=True):
        try:
            return int(parse_json(read_own(checkpoint / "state.json", DOCUMENT).decode())["memory"]["pool"]["tasks"])
        except (OSError, PosttrainError, ValueError, LookupError, TypeError, AttributeError):
            continue  # between stages, or removed meanwhile
    return None


def _lineage(row: Mapping[str, Any]) -> Page:
    """Parent, writer, step and depth of a born task; None for each that the record lacks."""
    found = parse_json(row["lineage"])
    own = found if isinstance(found, dict) else {}
    return {name: own.get(name) for name in ("parent", "writer", "step", "depth")}


def _found(sources: Sequence[Source], order: str, page: int) -> Page:
    """What the index of the rollouts has."""
    total = picks.totals(sources)
    columns = picks.columns_of(total["steps"])
    by = "reason" if 0 < total["reasons"] <= picks.MOST_ARMS else "domain"
    rows = picks.arms(sources, columns, by) if columns else []
    born, in_all_born = picks.born(sources, most=MOST_BORN)
    parents = {str(_lineage(row).get("parent")) for row in born}
    return {
        "totals": {**total, "steps": len(total["steps"])},
        "columns": columns,
        "arms_by": by,
        "arms": rows,
        "most_share": max((share for row in rows for share in row["shares"] if share), default=0.0),
        "difficulty": picks.difficulty(sources, columns) if columns else [],
        "predictions": picks.predictions(sources) if total["weights"] else [],
        "tasks": picks.tasks(sources, order, limit=TASKS_PER_PAGE, offset=(page - 1) * TASKS_PER_PAGE),
        "born": ancestry(born),
        "in_all_born": in_all_born,
        "parents": picks.prompts(sources, sorted(parents)) if parents else {},
        "hints": picks.hints(sources),
    }


def _difficulty(rows: Sequence[Mapping[str, Any]]) -> list[Page]:
    """The pass rate of chosen tasks within that of all seen ones."""
    if not rows:
        return []
    names = {"seen": "all tasks seen so far", "chosen": "chosen"}
    series = [
        Series(
            name=name,
            points=[(row["last"], row[key][1]) for row in rows],
            intervals=[(row[key][0], row[key][2]) for row in rows],
            band=True,
        )
        for key, name in names.items()
    ]
    caption = (
        "Median and the middle 80 % of the pass rates of chosen tasks, and of the newest pass rate of every task that "
        "was chosen until then."
    )
    return [_drawn(Chart(title="Difficulty", caption=caption, series=series, percent=True, floor=0.0))]


def _reported(metrics: Sequence[Entry]) -> list[Page]:
    """What the curriculum reports, one chart for each name; categories are its lines."""
    names = list(dict.fromkeys(key for entry in metrics for key in entry if key.startswith("curriculum/")))
    titles = dict.fromkeys(name.split("/")[1] for name in names)
    charts = [
        Chart(title=title.replace("_", " ").capitalize(), caption=f"Metrics curriculum/{title}.", series=lines)
        for title in titles
        if title not in ("share", "solved")
        if (lines := [_line(metrics, n) for n in names if n.split("/")[1] == title])
    ]
    own = {"probe_tokens": "Probe tokens", "completion_tokens": "Length"}
    captions = {"probe_tokens": "Tokens sampled to choose tasks.", "completion_tokens": "Mean tokens of an answer."}
    charts += [Chart(title=own[n], caption=captions[n], series=[_line(metrics, n)], floor=0.0) for n in own]
    shown = (replace(chart, series=[line for line in chart.series if line.points]) for chart in charts)
    return [_drawn(chart) for chart in shown if chart.series]


def _line(metrics: Sequence[Entry], name: str) -> Series:
    points = [(entry["step"], entry[name]) for entry in metrics if isinstance(entry.get(name), int | float)]
    return Series(name=name.split("/", 2)[-1].replace("_", " "), points=points)


def _drawn(chart: Chart) -> Page:
    return {
        "title": chart.title,
        "caption": chart.caption,
        "names": [line.name for line in chart.series],
        "svg": draw(chart, []),
    }


def _numbers(metrics: Sequence[Entry], name: str) -> list[float]:
    return [float(entry[name]) for entry in metrics if isinstance(entry.get(name), int | float)]


def _pages(page: int, count: int, size: int) -> Page:
    return {"page": page, "last": max(1, -(-count // size))}
