"""Looks up a number of a finished run by name.

    accuracy_after            a number of summary.json
    evaluation.calibration.brier  of the last evaluation of the held-out tasks
    evaluation.accuracy:mean  of all evaluations, the one before training left out
    reward                    a metric of metrics.jsonl: the mean over all steps that have it
    rl/reward:last10          the same of one stage, over its last 10 steps
    reward/pioneer|reward:last5   the first of several metrics that the run has, where methods name it differently
    reward:max, :min, :first, :last, :last5, :first5, :reached0.8

    tokens_to:accuracy=0.6    sampled tokens, with those of probes, until a number of the evaluations is at least that

``reached`` is the first step, counted from 1, at which a metric was at least that number, and one more than the number
of steps where it never was. ``tokens_to`` is interpolated between the two evaluations around the bound, the one before
training at 0 tokens; where no evaluation reaches it, it is all tokens of the run: a lower bound, so let runs be long
enough, and evaluate often (`evaluation.every`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.runs.store import SAMPLED_NLL, RunStore

_SPELLING = re.compile(r"(?P<path>[^:]+)(?::(?P<how>mean|max|min|first\d*|last\d*|reached-?[\d.]+))?")
_TOKENS_TO = re.compile(r"tokens_to:(?P<path>[\w.]+)=(?P<bound>-?[\d.]+)")

IN_SUMMARY = (
    "accuracy_before",
    "accuracy_after",
    "tasks_evaluated",
    "steps",
    "sampled_tokens",
    "trained_tokens",
    "seconds",
    "peak_memory_bytes",
)
"""Numbers of the summary of every finished run."""


def check_name(name: str) -> tuple[str, str | None]:
    """The path of a measure, and how its values are reduced. Raises `UserError` for a text that is not a measure."""
    if name.startswith("tokens_to:"):
        path, bound = _bound(name)
        return "tokens_to", f"{path}={bound}"
    matched = _SPELLING.fullmatch(name)
    if not matched:
        raise UserError(
            f"'{name}' is not a measure; write a number of the summary (accuracy_after), a metric (reward:last10, "
            "rl/reward:mean, reward:reached0.8) or a number of the evaluation (evaluation.mean_score)"
        )
    how = matched["how"]
    if how in ("first0", "last0"):
        reduce([0.0], how)
    return matched["path"], how


def in_every_summary(name: str) -> bool:
    """Whether every finished run has this measure, whatever its recipe."""
    return check_name(name) in {(path, None) for path in IN_SUMMARY}


def measure(store: RunStore, name: str) -> float:
    """The value of a measure. Raises `UserError` with the known names for a name that the run lacks."""
    path, how = check_name(name)
    if path == "tokens_to":
        return tokens_to(store, *_bound(name))
    if path.startswith("evaluation."):
        return reduce(_evaluated(store, path.removeprefix("evaluation.")), how or "last")
    summary = store.summary()
    if how is None and isinstance(summary.get(path), int | float):
        return float(summary[path])
    values = next(filter(None, (_metric(store, name) for name in path.split("|"))), [])
    if not values:
        raise UserError(_unknown(store, summary, path))
    return reduce(values, how or "mean")


def tokens_to(store: RunStore, path: str, bound: float) -> float:
    """Sampled tokens until a number of the evaluations is at least `bound`; all tokens of the run where it never is."""
    tokens = {0: 0.0}
    for entry in store.metrics():
        tokens[entry["step"]] = tokens[max(tokens)] + float(entry.get("sampled_tokens") or 0.0)
    points = [(tokens[e["step"]], _at(e, path)) for e in store.evaluations() if e["step"] in tokens]
    found = [(at, float(value)) for at, value in points if isinstance(value, int | float)]
    if not found:
        known = sorted({name for e in store.evaluations() for name in _numbers(e)})
        raise UserError(f"{store.folder}: no number '{path}' in its evaluations; {nearest(path, known)}")
    for (at, value), (before, lower) in zip(found, [found[0], *found], strict=False):
        if value >= bound:
            return at if value == lower else before + (at - before) * (bound - lower) / (value - lower)
    return tokens[max(tokens)]


def by_step(store: RunStore, name: str) -> dict[int, float]:
    """A measure's metric at each step of the run that has it, by step; empty if it is no metric of steps."""
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
    """One number from a series, in order."""
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
        raise UserError(f"'{how}' takes the mean over no step; write {kind}1 or more")
    part = values[:count] if kind == "first" else values[-count:]
    return sum(part) / len(part)


def _bound(name: str) -> tuple[str, float]:
    """The number and the bound of ``tokens_to:accuracy=0.6``. Raises `UserError` for another spelling."""
    matched = _TOKENS_TO.fullmatch(name)
    try:
        if matched:
            return matched["path"], float(matched["bound"])
    except ValueError:
        pass
    raise UserError(f"'{name}' is not a measure; write tokens_to:accuracy=0.6, with a number of the evaluations")


def _metric(store: RunStore, path: str) -> list[float]:
    """Values of a metric at the steps that have it; the name of a stage and a slash may precede it."""
    metrics = store.metrics()
    found = [e[path] for e in metrics if e.get(path) is not None]
    stage, _, rest = path.partition("/")
    if not found and rest:
        found = [e[rest] for e in metrics if e["stage"] == stage and e.get(rest) is not None]
    return [float(value) for value in found]


def _evaluated(store: RunStore, path: str) -> list[float]:
    """Values of a number in the evaluations after the first step."""
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
    """Why a name is unknown in this run, and the nearest names."""
    if path in summary:
        return f"{store.folder}: '{path}' was not measured in this run"
    known = {key for entry in store.metrics() for key, value in entry.items() if isinstance(value, int | float)}
    known |= {key for key, value in summary.items() if isinstance(value, int | float)}
    if path.rpartition("/")[2] == "entropy" and SAMPLED_NLL in known:
        return (
            f"{store.folder}: this run recorded no entropy; what older runs called 'entropy' is '{SAMPLED_NLL}', "
            "minus the mean log-probability of what was drawn"
        )
    return f"{store.folder}: no number '{path}' in its summary or metrics; {nearest(path, sorted(known))}"
