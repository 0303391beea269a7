"""The summary of a run: ``summary.json`` and one paragraph for the terminal.

Everything is derived from the record, so that it can be derived again. Accuracies are of the greedy answers to the
held-out tasks; a gain is a paired comparison on the tasks that were scored both before and after.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from posttrain.runs.amounts import duration, percent, probability
from posttrain.runs.journal import plain
from posttrain.runs.loss_text import numbers_of, sentences
from posttrain.runs.store import RunStore
from posttrain.statistics.paired import paired_difference

if TYPE_CHECKING:
    from posttrain.serving.spending import Spending

Entry = Mapping[str, Any]
"""A line of a journal."""
FOOLED: Final = "fooled"
"""Part of a score that an audit of the reward adds (`posttrain.components.rewards.audited`)."""
ALLOWED: Final = 0.05
"""Share of right answers that a text may outrank without a warning."""


def write_summary(store: RunStore) -> dict[str, Any]:
    """Make ``summary.json`` from the record, and return what is in it."""
    summary = summarize(store)
    store.write_document("summary.json", json.dumps(plain(summary), indent=1) + "\n")
    return summary


def summarize(store: RunStore, metrics: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The numbers of a run, finished or not. A number that was not measured is None.

    `metrics` are those of the run, where they have been read.
    """
    metrics = store.metrics() if metrics is None else metrics
    timing, evaluations = store.timing(), store.evaluations()
    recipe = store.recipe_tree()
    before = evaluations[0] if evaluations and evaluations[0]["step"] == 0 else None
    after = evaluations[-1] if evaluations else None
    whole = _between(store, before, after, recipe)
    summary = {
        "run": str(store.folder),
        "recipe": recipe.get("name"),
        **whole,
        "tasks_evaluated": after["tasks"] if after else 0,
        "verifier": after["verifier"] if after else None,
        "verifier_is_training_reward": _own_verifier(recipe) is None if after and after["verifier"] else None,
        "losses": sentences(before, after),
        "fooled": _fooled(store, metrics),
        "steps": len(metrics),
        **_cost(metrics, timing),
        "endpoints": {role: spent.as_json for role, spent in _endpoints(store, recipe).items()},
        "stages": _stages(store, recipe, metrics, timing, evaluations),
    }
    summary["warnings"] = _warnings(summary, recipe, after, store.events())
    lost = sorted({entry["step"] for entry in evaluations} - set(store.evaluation_steps()))
    if lost:
        steps = ", ".join(map(str, lost))
        summary["warnings"].append(
            f"held-out answers after step {steps} are gone from the record, and with them the gains from or to there"
        )
    summary["summary_line"] = summary_line(summary)
    return summary


def summary_line(summary: Entry) -> str:
    """A run in a paragraph."""
    took = f"{_count(summary['steps'], 'step')} in {duration(summary['seconds'])}"
    if summary["sampled_tokens"]:
        took += f", {summary['sampled_tokens']:,} tokens sampled"
    if summary["peak_memory_bytes"]:
        took += f", at most {summary['peak_memory_bytes'] / 2**20:,.0f} MiB of memory"
    parts = [f"{summary['recipe']}: {took}."]
    accuracy = [describe_accuracy(summary, when) for when in ("before", "after")]
    tasks = _count(summary["tasks_evaluated"], "held-out task")
    if all(accuracy):
        parts.append(f"Accuracy on {tasks}: {accuracy[0]} before, {accuracy[1]} after.")
        parts += [describe_gain(summary["gain"])] if summary["gain"] else []
    elif accuracy[1]:
        parts.append(f"Accuracy on {tasks}: {accuracy[1]} after; it was not measured before.")
    elif not summary["losses"]:
        parts.append("Held-out accuracy was not measured.")
    parts += summary["losses"]
    parts += [_spent(role, spent) for role, spent in summary["endpoints"].items()]
    parts += [f"Warning: {warning}." for warning in summary["warnings"]]
    return " ".join([*parts, f"Everything is in {summary['run']} (open report.html)."])


def _endpoints(store: RunStore, recipe: Entry) -> "dict[str, Spending]":
    """What the answers of endpoints have cost, by role."""
    from pydantic import TypeAdapter, ValidationError

    from posttrain.models import Budget
    from posttrain.runs.answers import spending_of

    budgets: dict[str, Budget | None] = {}
    for role, model in (recipe.get("models") or {}).items():
        given = ((model or {}).get("endpoint") or {}).get("budget")
        try:
            budgets[role] = TypeAdapter(Budget | None).validate_python(given)
        except ValidationError:  # the recipe of another version
            budgets[role] = None
    return spending_of(store.folder, budgets)


def _spent(role: str, spent: Entry) -> str:
    """``judge: 36 answers of an endpoint, 1,200 + 360 tokens (40 estimated), 0.002 in money.``"""
    guess = f" ({spent['estimated_tokens']:,} of them estimated)" if spent["estimated_tokens"] else ""
    money = "" if spent["cost"] is None else f", {spent['cost']:.4g} in money"
    tokens = f"{spent['prompt_tokens']:,} + {spent['completion_tokens']:,} tokens"
    return f"{role}: {_count(spent['answers'], 'answer')} of an endpoint, {tokens}{guess}{money}."


def describe_accuracy(summary: Entry, when: str) -> str:
    """``41.5 % [34.9, 48.4]``, or nothing when it was not measured."""
    accuracy, interval = summary[f"accuracy_{when}"], summary[f"accuracy_{when}_interval"]
    return "" if accuracy is None else percent(accuracy, interval)


def describe_gain(gain: Entry) -> str:
    """A gain in a sentence that claims a difference only where McNemar's exact test does, and its interval with it."""
    low, high = gain["interval"]
    points = f"{100 * gain['value']:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]"
    tested = f"McNemar's exact p {probability(gain['p_value'])}"
    if low > 0:
        return f"Better by {points} ({tested})."
    if high < 0:
        return f"Worse: {points} ({tested})."
    if gain["gained"] == gain["lost"] == 0:
        return f"Not one of {_count(gain['tasks'], 'task')} changed: {points}."
    return (
        f"No difference that {_count(gain['tasks'], 'task')} can show: {points} ({tested}); "
        f"one of {100 * gain['detectable']:.1f} points would have been found 4 times in 5."
    )


def correctness(store: RunStore, evaluation: Entry, correct_at: float) -> dict[str, bool]:
    """By task key, whether the greedy answer was correct; tasks that could not be scored are left out."""
    if evaluation["step"] not in store.evaluation_steps():
        return {}  # deleted: the summary warns of it
    rows = store.evaluation_rows(
        evaluation["step"],
        evaluation["name"],
        ["task_key", "reward"],
        "sample = 0 AND score_status <> 'error' AND reward IS NOT NULL",
    )
    return {row["task_key"]: row["reward"] >= correct_at for row in rows}


def correct_at(recipe: Entry) -> float:
    """The smallest score of a correct answer."""
    return float((recipe.get("evaluation") or {}).get("correct_at", 1.0))


def seconds_by_phase(timing: Sequence[Entry]) -> dict[str, float]:
    """Seconds of each phase over all steps, and as ``other`` what the phases leave of the total."""
    phases: dict[str, float] = {}
    for entry in timing:
        for key, value in entry.items():
            if key.startswith("seconds_") and key != "seconds_total" and value is not None:
                name = key.removeprefix("seconds_")
                phases[name] = phases.get(name, 0.0) + value
    other = sum(map(_seconds, timing)) - sum(phases.values())
    return phases | ({"other": other} if other > 1e-9 else {})


def _stages(
    store: RunStore,
    recipe: Entry,
    metrics: Sequence[Entry],
    timing: Sequence[Entry],
    evaluations: Sequence[Entry],
) -> list[dict[str, Any]]:
    """The summary of each stage that was begun, in the order of the recipe."""
    found = []
    for name in dict.fromkeys(entry["stage"] for entry in metrics):
        own = [entry for entry in metrics if entry["stage"] == name]
        first, last = own[0]["step"], own[-1]["step"]
        before = [e for e in evaluations if e["step"] < first]
        after = [e for e in evaluations if first <= e["step"] <= last]
        compared = _between(store, before[-1] if before else None, after[-1] if after else None, recipe)
        timed = [entry for entry in timing if entry["stage"] == name]
        found.append({"name": name, "steps": len(own), **compared, **_cost(own, timed)})
    return found


def _between(store: RunStore, before: Entry | None, after: Entry | None, recipe: Entry) -> dict[str, Any]:
    """Accuracies of two evaluations, and the gain from one to the other on the tasks of both."""
    if before is not None and before is after:
        after = None
    result: dict[str, Any] = {}
    for when, evaluation in (("before", before), ("after", after)):
        result[f"accuracy_{when}"] = evaluation["accuracy"] if evaluation else None
        result[f"accuracy_{when}_interval"] = evaluation["accuracy_interval"] if evaluation else None
    result |= numbers_of(before, after)
    result["gain"] = _gain(store, before, after, correct_at(recipe)) if before and after else None
    return result


def _gain(store: RunStore, before: Entry, after: Entry, threshold: float) -> dict[str, Any] | None:
    """The paired difference; None if no task was scored both times."""
    right_before, right_after = (correctness(store, evaluation, threshold) for evaluation in (before, after))
    shared = sorted(right_before.keys() & right_after.keys())
    if not shared:
        return None
    found = paired_difference([right_before[key] for key in shared], [right_after[key] for key in shared])
    return {
        "value": found.value,
        "interval": list(found.interval),
        "p_value": found.p_value,
        "tasks": found.tasks,
        "gained": found.gained,
        "lost": found.lost,
        "detectable": found.detectable,
    }


def _cost(metrics: Sequence[Entry], timing: Sequence[Entry]) -> dict[str, Any]:
    """Tokens, seconds and memory of some steps."""
    memory = [entry["peak_memory_bytes"] for entry in timing if entry.get("peak_memory_bytes") is not None]
    return {
        "sampled_tokens": round(sum(entry.get("sampled_tokens") or 0 for entry in metrics)),
        "trained_tokens": round(sum(entry.get("trained_tokens") or 0 for entry in metrics)),
        "seconds": sum(map(_seconds, timing)),
        "peak_memory_bytes": round(max(memory)) if memory else None,
    }


def _seconds(entry: Entry) -> float:
    """Seconds of a line of timing: its total, or the sum of its phases if it has none (an evaluation)."""
    if entry.get("seconds_total") is not None:
        return float(entry["seconds_total"])
    return float(sum(v for k, v in entry.items() if k.startswith("seconds_") and v is not None))


def _warnings(summary: Entry, recipe: Entry, after: Entry | None, events: Sequence[Entry]) -> list[str]:
    """Warnings about the validity of the numbers."""
    fooled = summary["fooled"]
    warnings = []
    if fooled and (fooled["share"] or 0.0) > ALLOWED:
        warnings.append(f"the reward is fooled: {fooled['text']}")
    if fooled and fooled["unknown"] == 1.0:
        warnings.append("whether the reward is fooled is unknown: it scored none of the right answers and texts")
    if after is None and (recipe.get("evaluation") or {}).get("by") == "none":
        return warnings  # as the user chose
    if after is None:
        return [*warnings, "no held-out accuracy was measured: it is unknown whether the model got better"]
    if summary["verifier_is_training_reward"]:
        warnings.append(
            "the held-out answers were scored by the training reward itself; evaluation.verifier sets another verifier"
        )
    if after["errors"]:
        warnings.append(f"{after['errors']} of {_count(after['tasks'], 'held-out answer')} could not be scored")
    if (after.get("truncated") or 0.0) > 0.05:
        warnings.append(f"{percent(after['truncated'])} of the held-out answers were cut at the token limit")
    wanted = (recipe.get("evaluation") or {}).get("holdout")
    if wanted and after["verifier"] and after["tasks"] < wanted:
        warnings.append(f"only {_count(after['tasks'], 'task')} of the {wanted} requested could be held out")
    alarms = [event for event in events if event["kind"] == "alarm"]
    if alarms:
        warnings.append(
            f"{_count(len(alarms), 'alarm')}, the last at step {alarms[-1]['step']}: {alarms[-1]['message']}"
        )
    return [warning.rstrip(".") for warning in warnings]


def _fooled(store: RunStore, metrics: Sequence[Entry]) -> dict[str, Any] | None:
    """What an audit of the reward last found: the largest share of right answers that a text without content or a
    frequent output outranks, and which; None without an audit.
    """
    names = (f"reward/{FOOLED}", f"reward/{FOOLED}_unknown")
    measured = [entry for entry in metrics if any(entry.get(name) is not None for name in names)]
    if not measured:
        return None
    rows = store.rollouts(measured[-1]["step"], ["parts"])
    found = [own[FOOLED] for row in rows if FOOLED in (own := row["parts"] or {})]
    worst: Entry = max(found, key=lambda own: float(own["value"]), default={})
    return {
        "share": worst.get("value"),
        "text": worst.get("explanation"),
        "unknown": measured[-1].get(names[1]) or 0.0,
    }


def _own_verifier(recipe: Entry) -> Any:
    """The evaluation's own verifier; None if the training reward scores the answers."""
    return (recipe.get("evaluation") or {}).get("verifier")


def _count(number: int, thing: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
