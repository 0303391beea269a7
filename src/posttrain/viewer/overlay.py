"""Curves of several runs in one picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.errors import UserError
from posttrain.runs.charts import Chart, Series, draw
from posttrain.runs.store import RunStore
from posttrain.viewer.listing import or_problem
from posttrain.viewer.shares import mixtures

Page = dict[str, Any]

MOST_RUNS = 5
"""As many as there are colours that can be distinguished."""
ACCURACY = "held-out accuracy"
FIRST = (ACCURACY, "reward", "solved", "loss", "completion_tokens", "entropy")
"""The metrics that are shown unless others are chosen, where a run has them."""
SHARES = frozenset({ACCURACY, "solved", "truncated", "zero_variance", "grader_errors", "repeated", "duplicates"})
MOST_METRICS = 12


def overlay(found: Mapping[str, Path], chosen: Sequence[str], metrics: Sequence[str]) -> Page:
    """A chart for each metric, with a line for each run. Raises `UserError` for too many of either."""
    chosen = list(dict.fromkeys(chosen)) or list(found)[:2]
    if len(chosen) > MOST_RUNS:
        raise UserError(f"at most {MOST_RUNS} runs are drawn together, got {len(chosen)}: more lines are not readable")
    if len(metrics) > MOST_METRICS:
        raise UserError(f"at most {MOST_METRICS} metrics are drawn at a time, got {len(metrics)}")
    curves, problems = dict[str, dict[str, Series]](), dict[str, str]()
    for name in chosen:
        nothing: dict[str, Series] = {}
        curves[name], problem = or_problem(lambda folder=found[name], name=name: _curves(name, folder), nothing)  # type: ignore[misc]
        problems |= {name: problem} if problem else {}
    known = sorted({metric for own in curves.values() for metric in own})
    shown = [metric for metric in (metrics or FIRST) if metric in known]
    charts = []
    no_mixtures: Page | None = None
    for metric in shown:
        series = [curves[name].get(metric, Series(name=name, points=[])) for name in chosen]  # one colour for each run
        share = metric in SHARES
        chart = Chart(title=metric, caption="", series=series, percent=share, floor=0.0 if share else None)
        charts.append({"title": metric.replace("_", " "), "svg": draw(chart, [])})
    return {
        "chosen": chosen,
        "runs": list(found),
        "metrics": known,
        "shown": shown,
        "charts": charts,
        "problems": problems,
        "mixtures": or_problem(lambda: mixtures(found, chosen[0]), no_mixtures)[0] if chosen else None,
    }


def _curves(name: str, folder: Path) -> dict[str, Series]:
    """By metric, the curve of a run."""
    with RunStore.open(folder, reading=True) as store:
        entries, evaluations = store.metrics(), store.evaluations()
    points: dict[str, list[tuple[float, float]]] = {}
    for entry in entries:
        for key, value in entry.items():
            if key not in ("step", "stage_step") and isinstance(value, int | float):
                points.setdefault(key, []).append((entry["step"], float(value)))
    found = {key: Series(name=name, points=own) for key, own in points.items()}
    scored = {e["step"]: e for e in evaluations if e.get("accuracy") is not None}
    if scored:
        found[ACCURACY] = Series(
            name=name,
            points=[(step, e["accuracy"]) for step, e in scored.items()],
            intervals=[tuple(e["accuracy_interval"]) for e in scored.values()],
        )
    return found
