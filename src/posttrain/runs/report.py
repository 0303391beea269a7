"""``report.html``: a run on one page that needs nothing else, neither network nor this package.

The page is made from the record alone, so it can be made again at any time, also of a run in progress.
"""

import math
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from posttrain.runs.charts import Chart, Series, Span, draw, draw_intervals
from posttrain.runs.readings import number
from posttrain.runs.store import RunStore
from posttrain.runs.summary import (
    correct_at,
    describe_gain,
    duration,
    percent,
    seconds_by_phase,
    summarize,
)
from posttrain.runs.token_text import TokenTexts

Entry = Mapping[str, Any]

SHOWN = {"gained": 6, "lost": 4, "wrong": 4, "right": 3}
"""Held-out tasks that are shown, by what became of them."""
_MOST_TEXT = 4000
_MOST_TOKENS = 500
_MOST_EVENTS = 200
_ANSWER_COLUMNS = (
    "task_key",
    "prompt",
    "completion",
    "answer",
    "reward",
    "score_status",
    "score_answer",
    "score_explanation",
    "stop_reason",
)
_ROLLOUT_COLUMNS = (
    *_ANSWER_COLUMNS,
    "group_index",
    "dropped_reason",
    "token_ids",
    "trained",
    "sampled_logp",
    "trained_logp",
    "entropy",
    "advantage",
)


def write_report(folder: Path) -> Path:
    """Make ``report.html`` in a run's folder; return its path."""
    with RunStore.open(folder, reading=True) as store:
        summary, metrics, timing = summarize(store), store.metrics(), store.timing()
        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        environment.filters |= {
            "percent": percent,
            "duration": duration,
            "number": number,
            "visible": visible,
            "shortened": shortened,
        }
        page = environment.from_string(_asset("report.html")).render(
            style=Markup(_asset("report.css")),
            script=Markup(_asset("report.js")),
            summary=summary,
            gain=describe_gain(summary["gain"]) if summary["gain"] else "",
            intervals=_intervals(summary),
            charts=_charts(metrics, store.evaluations()),
            answers=_answers(store),
            rollouts=_rollouts(store),
            events=[*store.events(), *_notable(store.history())][-_MOST_EVENTS:],
            phases=_phases(timing),
            machine=_machine(store.environment()),
            started=next((entry["time"] for entry in store.history()), ""),
            recipe=(store.folder / "recipe.yaml").read_text(encoding="utf-8", errors="replace"),
            again=f"posttrain run {shlex.quote(str(store.folder))}",
            command=shlex.join(map(str, store.environment().get("command", []))),
        )
        return store.write_document("report.html", page)


def visible(text: str) -> str:
    """The text with control characters as the pictures that Unicode has for them; tabs and line ends stay."""
    pictures = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {127: 0x2421}
    return text.translate(pictures)


def shortened(text: str) -> str:
    """The text with its middle left out when it is very long."""
    if len(text) <= _MOST_TEXT:
        return text
    half = _MOST_TEXT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def _asset(name: str) -> str:
    """A file that lies beside this module."""
    return resources.files("posttrain.runs").joinpath(name).read_text(encoding="utf-8")


def _intervals(summary: Entry) -> Markup:
    """The picture of the accuracies and their intervals; nothing where there are none."""
    rows = [
        (when, summary[f"accuracy_{when}"], summary[f"accuracy_{when}_interval"])
        for when in ("before", "after")
        if summary[f"accuracy_{when}"] is not None
    ]
    return draw_intervals(rows) if rows else Markup("")


def _charts(metrics: Sequence[Entry], evaluations: Sequence[Entry]) -> list[dict[str, Any]]:
    """Every curve for which there are numbers."""
    spans = [
        Span(name=name, first=min(steps), last=max(steps))
        for name in dict.fromkeys(entry["stage"] for entry in metrics)
        if (steps := [entry["step"] for entry in metrics if entry["stage"] == name])
    ]
    charts = [
        Chart(
            title="Held-out accuracy",
            caption="Right greedy answers to tasks that were never trained on, with 95 % intervals.",
            series=[_accuracy(evaluations)],
            percent=True,
            floor=0.0,
        ),
        _chart(metrics, "Reward", "Mean score of the sampled answers, and of its parts.", "reward", "reward/"),
        _chart(metrics, "Loss", "How surprised the model is by what it is taught, in nats per token.", "loss"),
        _chart(metrics, "Length", "Mean tokens of an answer.", "completion_tokens"),
        _chart(
            metrics,
            "Entropy",
            "How undecided the policy is, in nats per token; at zero it explores no more.",
            "entropy",
        ),
        _chart(metrics, "Divergence", "How far the policy has moved from a reference (KL, nats per token).", "kl/"),
        _chart(
            metrics,
            "Shares",
            "Groups whose rewards are all equal teach nothing; truncated answers were cut at the token limit.",
            "zero_variance",
            "truncated",
            "grader_errors",
            percent=True,
            floor=0.0,
        ),
        _chart(metrics, "Gradient norm", "Size of the update before clipping.", "gradient_norm", floor=0.0),
    ]
    return [
        {"title": chart.title, "caption": chart.caption, "names": [s.name for s in chart.series], "svg": draw(chart, spans)}
        for chart in charts
        if any(series.points for series in chart.series)
    ]


def _chart(metrics: Sequence[Entry], title: str, caption: str, *names: str, **options: Any) -> Chart:
    """A chart of some metrics; a name that ends in a slash stands for all that begin so."""
    known = list(dict.fromkeys(key for entry in metrics for key in entry))
    chosen = [key for name in names for key in known if key == name or (name.endswith("/") and key.startswith(name))]
    series = [
        Series(
            name=key.split("/", 1)[-1].replace("_", "-") if "/" in key else key.replace("_", " "),
            points=[(entry["step"], entry[key]) for entry in metrics if entry.get(key) is not None],
        )
        for key in chosen
    ]
    return Chart(title=title, caption=caption, series=[s for s in series if s.points], **options)


def _accuracy(evaluations: Sequence[Entry]) -> Series:
    """Held-out accuracy by step; a later evaluation after the same step takes the place of an earlier one."""
    judged = {e["step"]: e for e in evaluations if e["accuracy"] is not None}
    return Series(
        name="accuracy",
        points=[(step, e["accuracy"]) for step, e in judged.items()],
        intervals=[tuple(e["accuracy_interval"]) for e in judged.values()],
    )


def _answers(store: RunStore) -> dict[str, Any]:
    """Held-out tasks with the answer before and the one after, by what became of them."""
    evaluations = store.evaluations()
    if not evaluations:
        return {"groups": [], "before": False}
    first, last = evaluations[0], evaluations[-1]
    threshold = correct_at(store.recipe_tree())
    before = {} if first is last else _greedy(store, first, threshold)
    after = _greedy(store, last, threshold)
    kinds: dict[str, list[dict[str, Any]]] = {name: [] for name in SHOWN}
    for key, answer in after.items():
        earlier = before.get(key)
        was_right = earlier["right"] if earlier else answer["right"]
        kind = {(False, True): "gained", (True, False): "lost", (False, False): "wrong", (True, True): "right"}[
            was_right, answer["right"]
        ]
        kinds[kind].append({"before": earlier, "after": answer})
    titles = {"gained": "Learned", "lost": "Lost", "wrong": "Still wrong", "right": "Still right"}
    if not before:
        titles |= {"wrong": "Wrong", "right": "Right"}
    groups = [
        {"name": name, "title": titles[name], "count": len(pairs), "pairs": pairs[: SHOWN[name]]}
        for name, pairs in kinds.items()
        if pairs
    ]
    return {"groups": groups, "before": bool(before)}


def _greedy(store: RunStore, evaluation: Entry, threshold: float) -> dict[str, dict[str, Any]]:
    """Greedy answers of an evaluation by task key, each marked right or not."""
    rows = store.evaluation_rows(evaluation["step"], evaluation["name"], _ANSWER_COLUMNS, "sample = 0")
    return {row["task_key"]: _marked(row, threshold) for row in rows}


def _marked(row: dict[str, Any], threshold: float) -> dict[str, Any]:
    """An answer with ``right`` and the ``badge`` that it gets."""
    judged = row["reward"] is not None and row["score_status"] != "error"
    right = judged and row["reward"] >= threshold
    return {**row, "right": right, "badge": "right" if right else "wrong" if judged else "not judged"}


def _rollouts(store: RunStore) -> dict[str, Any] | None:
    """Two groups of the last recorded step, token by token; groups that taught something come first."""
    steps = store.rollout_steps()
    if not steps:
        return None
    step = steps[-1]
    rewards: dict[int, set[float | None]] = {}
    for row in store.rollouts(step, ["group_index", "reward"]):
        rewards.setdefault(row["group_index"], set()).add(row["reward"])
    chosen = sorted(sorted(rewards), key=lambda group: -len(rewards[group]))[:2]
    if not chosen:
        return None
    rows = store.rollouts(step, _ROLLOUT_COLUMNS, f"group_index IN ({', '.join(map(str, chosen))})")
    texts = TokenTexts.find(store.folder)
    largest = max((abs(a) for row in rows for a in row["advantage"] or () if a is not None), default=0.0)
    threshold = correct_at(store.recipe_tree())
    groups = []
    for group in chosen:
        own = [_marked(row, threshold) for row in rows if row["group_index"] == group][:6]
        for row in own:
            row["pieces"] = _pieces(row, texts, largest) if texts else []
            row["left_out"] = max(0, len(row["token_ids"]) - _MOST_TOKENS)
        groups.append({"prompt": own[0]["prompt"], "answer": own[0]["answer"], "rows": own})
    return {"step": step, "groups": groups, "coloured": texts is not None}


def _pieces(row: Entry, texts: TokenTexts, largest: float) -> list[dict[str, Any]]:
    """Texts after the prompt with the strength, in [0, 1], of each colour that a token can be shown in."""
    start = next((i for i, trained in enumerate(row["trained"]) if trained), 0)
    found = []
    for piece in texts.pieces(row["token_ids"][start : start + _MOST_TOKENS]):
        at = start + piece.start
        advantage, entropy = _value(row["advantage"], at), _value(row["entropy"], at)
        logp = _value(row["trained_logp"], at)
        logp = _value(row["sampled_logp"], at) if logp is None else logp
        told = {"advantage": advantage, "log-probability": logp, "entropy": entropy}
        found.append(
            {
                "text": piece.text,
                "trained": row["trained"][at],
                "gain": advantage is not None and advantage > 0,
                "advantage": _strength(advantage, largest),
                "surprise": _strength(logp, 4.0),
                "entropy": _strength(entropy, 2.0),
                "told": ", ".join(f"{name} {number(value)}" for name, value in told.items() if value is not None),
            }
        )
    return found


def _value(values: Sequence[float | None] | None, at: int) -> float | None:
    """An entry of a token list that may not be there."""
    return values[at] if values is not None else None


def _strength(value: float | None, full: float) -> float:
    """How strong the colour of a value is, from 0 to 1."""
    return 0.0 if value is None or not full or math.isnan(value) else round(min(1.0, abs(value) / full), 2)


def _notable(history: Sequence[Entry]) -> list[Entry]:
    """What happened to the process that a reader should know."""
    return [entry for entry in history if entry["kind"] in ("rewound", "repaired", "bad checkpoint")]


def _phases(timing: Sequence[Entry]) -> list[dict[str, Any]]:
    """Seconds by phase, the longest first, with their share."""
    phases = seconds_by_phase(timing)
    total = sum(phases.values())
    ordered = sorted(phases.items(), key=lambda item: -item[1])
    return [{"name": name, "seconds": s, "share": s / total if total else 0.0} for name, s in ordered]


def _machine(environment: Entry) -> list[tuple[str, str]]:
    """What is known of machine and software, as names and texts."""
    git, memory = environment.get("git"), environment.get("memory_bytes")
    found = {
        "processor": environment.get("cpu"),
        "cores": environment.get("cores"),
        "memory": f"{memory / 2**30:.1f} GiB" if memory else None,
        "device": environment.get("device"),
        "system": environment.get("platform"),
        "python": environment.get("python"),
        **(environment.get("packages") or {}),
        "git": f"{git['commit'][:12]}{' with changes' if git['dirty'] else ''}" if git else None,
    }
    return [(name, str(value)) for name, value in found.items() if value is not None]
