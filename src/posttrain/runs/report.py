"""``report.html``: a run on one page that needs nothing else, neither network nor this package.

The page is made from the record alone, so it can be made again at any time, also of a run in progress.
"""

import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from posttrain.runs.charts import Chart, Series, Span, draw, draw_intervals
from posttrain.runs.samples import compared_answers, last_rollouts
from posttrain.runs.store import REPAIRS, RunStore
from posttrain.runs.summary import describe_gain, duration, percent, seconds_by_phase, summarize

Entry = Mapping[str, Any]

_MOST_TEXT = 4000
_MOST_EVENTS = 200


def write_report(folder: Path) -> Path:
    """Make ``report.html`` in a run's folder; return its path."""
    with RunStore.open(folder, reading=True) as store:
        summary, metrics, timing = summarize(store), store.metrics(), store.timing()
        environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
        environment.filters |= {
            "percent": percent,
            "duration": duration,
            "visible": visible,
            "shortened": shortened,
        }
        page = environment.from_string(_asset("report.html")).render(
            style=Markup(_asset("report.css")),
            script=Markup(_asset("report.js")),
            summary=summary,
            gain=describe_gain(summary["gain"]) if summary["gain"] else "",
            verdict_on_gain=_verdict(summary["gain"]),
            intervals=_intervals(summary),
            charts=_charts(metrics, store.evaluations()),
            answers=compared_answers(store),
            rollouts=last_rollouts(store),
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


def _verdict(gain: Entry | None) -> str:
    """Whether the interval of a gain is on one side of zero, and on which."""
    if gain is None or gain["interval"][0] <= 0 <= gain["interval"][1]:
        return "unclear"
    return "better" if gain["interval"][0] > 0 else "worse"


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
        _chart(
            metrics,
            "Loss",
            "In imitation, surprise at what is taught, in nats per token; in reinforcement, no measure of progress.",
            "loss",
        ),
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
        {
            "title": chart.title,
            "caption": chart.caption,
            "names": [s.name for s in chart.series],
            "svg": draw(chart, spans),
        }
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


def _notable(history: Sequence[Entry]) -> list[Entry]:
    """What happened to the process that a reader should know."""
    return [entry for entry in history if entry["kind"] in ("repaired", *REPAIRS)]


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
        "packages": ", ".join(f"{name} {version}" for name, version in (environment.get("packages") or {}).items()),
        "git": f"{git['commit'][:12]}{' with changes' if git['dirty'] else ''}" if git else None,
    }
    return [(name, str(value)) for name, value in found.items() if value]
