"""The result of a comparison: every contender's measures, the differences, and sentences that claim no more than those.

One criterion decides a sentence: Student's paired t test over seeds, corrected by Holm's procedure where there are
several differences. The interval next to it has the level of its step of that procedure, so the two always agree.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from posttrain.component import nearest
from posttrain.errors import RunFailed
from posttrain.runs.amounts import difference, probability, size, unit_of
from posttrain.runs.measures import by_step, measure
from posttrain.runs.store import RunStore
from posttrain.statistics.interquartile import stratified_interquartile_mean
from posttrain.statistics.intervals import mean
from posttrain.statistics.multiple import holm
from posttrain.statistics.repeated import repeated_difference, smallest_sign_flip_p

COST = ("sampled_tokens", "trained_tokens", "seconds")
"""Costs that are reported with every measure."""
PROGRESS = ("reward", "loss")
"""Metrics of which the first that the runs have is kept for every step, with the metrics of the measures."""
ALPHA = 0.05
"""Chance of claiming any difference where there is none."""

Verdict = Literal["higher", "lower", "unclear", "equal", "constant", "one seed"]
"""``equal``: the same in every seed. ``constant``: the same difference in every seed, so that there is no std."""
Runs = Mapping[str, Mapping[int, Path]]
"""The folders of finished runs, by contender and seed; the baseline first."""
Values = Mapping[str, Mapping[int, Mapping[str, float]]]
"""Measures by contender, seed and name."""


def result_of(runs: Runs, measures: Sequence[str], failures: Mapping[str, str]) -> dict[str, Any]:
    """The measures of every finished run, and the difference of each contender from the first.

    A seed counts in a difference where both runs are finished. What is missing is listed under ``failures``.
    """
    values = {
        label: {seed: _measured(folder, measures) for seed, folder in found.items()} for label, found in runs.items()
    }
    rows = rows_of(values, measures)
    for row in rows:
        row["curves"] = curves(list(runs[row["contender"]].values()), measures)
    return {
        "base": next(iter(runs)),
        "measures": list(measures),
        "notes": notes_of(rows, measures),
        "contenders": rows,
        "failures": dict(failures),
    }


def rows_of(values: Values, measures: Sequence[str]) -> list[dict[str, Any]]:
    """A row per contender: by measure and cost, the mean over seeds, and the difference from the first contender."""
    base = next(iter(values))
    rows: list[dict[str, Any]] = []
    for label, own in values.items():
        row: dict[str, Any] = {"contender": label, "seeds": sorted(own)}
        for name in (*measures, *COST):
            row[name] = _spread([own[seed][name] for seed in sorted(own)]) if own else None
        rows.append(row)
    tested = {
        (place, name): [[values[label][seed][name] for seed in shared] for label in (base, row["contender"])]
        for place, row in enumerate(rows)
        for name in measures
        if place and (shared := sorted(values[row["contender"]].keys() & values[base].keys()))
    }
    for (place, name), found in _differences(tested).items():
        rows[place][name]["difference"] = found
    return rows


def notes_of(rows: Sequence[Mapping[str, Any]], measures: Sequence[str]) -> list[str]:
    """What a reader must know before the sentences: the criterion, and the correction."""
    found = [row[name]["difference"] for row in rows for name in measures if row[name] and "difference" in row[name]]
    seeds = [one["seeds"] for one in found if one["seeds"] > 1]
    notes = [criterion(min(seeds))] if seeds else []
    if len(found) > 1:
        notes.append(
            f"{len(found)} differences are tested: Holm's procedure adjusts their p-values, so that the chance of "
            f"claiming one where there is none is at most {100 * ALPHA:.0f} %; each interval has the level of its step."
        )
    return notes


def criterion(seeds: int) -> str:
    """What decides a sentence with this number of seeds, and what they cannot reach."""
    smallest = smallest_sign_flip_p(seeds)
    rests = "Student's paired t test decides the sentences; it takes differences between seeds as normal."
    if smallest < ALPHA:
        return rests
    return (
        f"With {seeds} seeds a sign-flip test, which assumes no distribution, has p = {smallest:.3g} at best. {rests}"
    )


def sentence(row: Mapping[str, Any], name: str, base: str) -> str:
    """A difference in a sentence that claims no more than its test allows."""
    found = row[name].get("difference") if row[name] else None
    who = row["contender"]
    if found is None:
        return f"{who} has no seed in common with {base}."
    unit, count = unit_of(name), found["seeds"]
    value = difference(found["value"], found["interval"], unit)
    level = f" ({100 * found['level']:.4g} % interval)" if found["interval"] and found["level"] != 1 - ALPHA else ""
    seeds = f"{count} seed{'s' if count > 1 else ''}"
    tested = f"higher in {found['higher']} of {seeds}, p {probability(found['p_value'])}"
    match found["verdict"]:
        case "higher" | "lower" as which:
            return f"{who}: {name} is {which} than {base}'s by {value}{level} ({tested})."
        case "equal":
            return f"{who}: {name} is the same as {base}'s in each of {seeds}."
        case "constant":
            value = difference(found["value"], None, unit)
            return f"{who}: {name} differs from {base}'s by {value} in each of {seeds}; without a std there is no test."
        case "one seed":
            return f"{who}: {name} differs from {base}'s by {value}; one seed gives no interval."
    return (
        f"{who}: no difference in {name} from {base}'s that {seeds} can show: {value}{level} ({tested}); one of "
        f"{size(found['detectable'], unit)} would have been found 4 times in 5."
    )


def curves(folders: Sequence[Path], measures: Sequence[str]) -> dict[str, Any]:
    """By metric: the mean over runs and its interval (None for one run) at every step that all of them have."""
    stores = [RunStore.open(folder, reading=True) for folder in folders]
    found = {name: [by_step(store, name) for store in stores] for name in (*PROGRESS, *measures)}
    for store in stores:
        store.close()
    there = {name: runs for name, runs in found.items() if runs and all(runs)}
    progress = next((name for name in PROGRESS if name in there), None)
    drawn: dict[str, Any] = {}
    for name, runs in there.items():
        path = name.partition(":")[0]
        if (name in PROGRESS and name != progress) or path in drawn:
            continue
        steps = sorted(set.intersection(*map(set, runs)))
        means = [mean([run[step] for run in runs]) for step in steps]
        drawn[path] = {
            "steps": steps,
            "mean": [round(m.value, 6) for m in means],
            "interval": [_rounded(m.interval) for m in means],
        }
    return drawn


def _measured(folder: Path, measures: Sequence[str]) -> dict[str, float]:
    """Every measure of one run."""
    store = RunStore.open(folder, reading=True)
    found = {name: measure(store, name) for name in measures}
    summary = store.summary()
    store.close()
    wrong = [name for name, value in found.items() if not math.isfinite(value)]
    if wrong:
        raise RunFailed(f"{folder}: {wrong[0]} is not a finite number; {nearest(wrong[0], summary)}")
    return found | {name: float(summary[name]) for name in COST}


def _spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean and interquartile mean over seeds, each with its interval, and every value."""
    found = mean(values)
    middle = stratified_interquartile_mean(values) if len(values) > 1 else None
    return {
        "mean": found.value,
        "interval": _finite(found.interval),
        "iqm": {"value": middle.value, "interval": list(middle.interval)} if middle else None,
        "values": list(values),
    }


def _differences(tested: Mapping[Any, Sequence[Sequence[float]]]) -> dict[Any, dict[str, Any]]:
    """Every difference, tested together: intervals at their levels, and adjusted p-values."""
    first = {key: repeated_difference(base, other) for key, (base, other) in tested.items()}
    family = [key for key, found in first.items() if found.seeds > 1]
    corrected = dict(zip(family, holm([first[key].p_value for key in family], ALPHA), strict=True))
    result = {}
    for key, (base, other) in tested.items():
        level = corrected[key].level if key in corrected else 1 - ALPHA
        found, p_value = repeated_difference(base, other, level), first[key].p_value
        adjusted = corrected[key].p_value if key in corrected else p_value
        result[key] = {
            "value": found.value,
            "interval": _finite(found.interval) if found.std else None,
            "level": level,
            "verdict": _verdict(found.value, found.std, adjusted),
            "seeds": found.seeds,
            "higher": found.higher,
            "lower": found.lower,
            "p_value": adjusted,
            "uncorrected_p": p_value,
            "sign_flip_p": found.sign_flip_p,
            "std": found.std,
            "detectable": found.detectable if math.isfinite(found.detectable) else None,
        }
    return result


def _verdict(value: float, std: float | None, adjusted: float) -> Verdict:
    """The conclusion that the test allows."""
    if std is None:
        return "one seed"
    if std == 0:
        return "constant" if value else "equal"
    if adjusted >= ALPHA:
        return "unclear"
    return "higher" if value > 0 else "lower"


def _rounded(interval: Sequence[float]) -> list[float] | None:
    """An interval, rounded as it is stored."""
    found = _finite(interval)
    return [round(edge, 6) for edge in found] if found else None


def _finite(interval: Sequence[float]) -> list[float] | None:
    return list(interval) if all(map(math.isfinite, interval)) else None
