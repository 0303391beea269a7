"""Looks up a number of a finished run by name.

    accuracy_after            a number of summary.json
    evaluation.calibration.brier  of the last evaluation of the held-out tasks
    evaluation.accuracy:mean  of all evaluations, the one before training left out
    reward                    a metric of metrics.jsonl: the mean over all steps that have it
    rl/reward:last10          the same of one stage, over its last 10 steps
    reward/pioneer|reward:last5   the first of several metrics that the run has, where methods name it differently
    reward:max, :min, :first, :last, :last5, :first5, :reached0.8

``reached`` is the first step, counted from 1, at which a metric was at least that number, and one more than the number
of steps where it never was.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.runs.store import RunStore

_SPELLING = re.compile(r"(?P<path>[^:]+)(?::(?P<how>mean|max|min|first\d*|last\d*|reached-?[\d.]+))?")


def measure(store: RunStore, name: str) -> float:
    """The number. Raises `UserError` for a name that the run knows nothing of, with those that it does know."""
    matched = _SPELLING.fullmatch(name)
    if not matched:
        raise UserError(
            f"'{name}' is not a measure; write a number of the summary (accuracy_after), a metric (reward:last10, "
            "rl/reward:mean, reward:reached0.8) or a number of the evaluation (evaluation.mean_score)"
        )
    path, how = matched["path"], matched["how"]
    if path.startswith("evaluation."):
        return reduce(_evaluated(store, path.removeprefix("evaluation.")), how or "last")
    summary = store.summary()
    if how is None and isinstance(summary.get(path), int | float):
        return float(summary[path])
    values = next(filter(None, (_metric(store, name) for name in path.split("|"))), [])
    if not values:
        raise UserError(_unknown(store, summary, path))
    return reduce(values, how or "mean")


def by_step(store: RunStore, name: str) -> dict[int, float]:
    """A measure's metric at each step of the run that has it, by the step; empty for what is no metric of steps."""
    matched = _SPELLING.fullmatch(name)
    for path in matched["path"].split("|") if matched else ():
        stage, _, rest = path.partition("/")
        found = {e["step"]: e[path] for e in store.metrics() if e.get(path) is not None}
        found = found or {
            e["step"]: e[rest] for e in store.metrics() if e["stage"] == stage and e.get(rest) is not None
        }
        if found:
            return {step: float(value) for step, value in found.items()}
    return {}


def reduce(values: Sequence[float], how: str) -> float:
    """One number of many, in order."""
    if how == "mean":
        return sum(values) / len(values)
    if how in ("max", "min"):
        return max(values) if how == "max" else min(values)
    if how.startswith("reached"):
        bound = float(how.removeprefix("reached"))
        return float(next((i for i, value in enumerate(values, 1) if value >= bound), len(values) + 1))
    kind = "first" if how.startswith("first") else "last"
    count = int(how.removeprefix(kind) or 1)
    if count < 1:
        raise UserError(f"'{how}' takes the mean of no step at all; write {kind}1 or more")
    part = values[:count] if kind == "first" else values[-count:]
    return sum(part) / len(part)


def _metric(store: RunStore, path: str) -> list[float]:
    """A metric over the steps that have it; before a slash may stand the name of a stage."""
    metrics = store.metrics()
    found = [e[path] for e in metrics if e.get(path) is not None]
    stage, _, rest = path.partition("/")
    if not found and rest:
        found = [e[rest] for e in metrics if e["stage"] == stage and e.get(rest) is not None]
    return [float(value) for value in found]


def _evaluated(store: RunStore, path: str) -> list[float]:
    """A number of every evaluation after the first step."""
    after = [e for e in store.evaluations() if e["step"] > 0]
    found = [value for e in after if isinstance(value := _at(e, path), int | float)]
    if not found:
        known = sorted(_numbers(after[-1])) if after else []
        raise UserError(f"{store.folder}: no number '{path}' in its evaluations; {nearest(path, known)}")
    return [float(value) for value in found]


def _at(tree: Any, path: str) -> Any:
    for part in path.split("."):
        tree = tree.get(part) if isinstance(tree, Mapping) else None
    return tree


def _numbers(tree: Mapping[str, Any], above: str = "") -> list[str]:
    """Paths of all numbers in a tree."""
    found = []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            found += _numbers(value, f"{above}{key}.")
        elif isinstance(value, int | float):
            found.append(f"{above}{key}")
    return found


def _unknown(store: RunStore, summary: Mapping[str, Any], path: str) -> str:
    """Why a name means nothing in this run, and what is near it."""
    if path in summary:
        return f"{store.folder}: '{path}' was not measured in this run"
    known = {key for entry in store.metrics() for key, value in entry.items() if isinstance(value, int | float)}
    known |= {key for key, value in summary.items() if isinstance(value, int | float)}
    return f"{store.folder}: no number '{path}' in its summary or metrics; {nearest(path, sorted(known))}"
