"""``report.html``: a self-contained page about a run.

The page is made from the record alone, so it can be made again at any time, also of a run in progress.
"""

import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from posttrain.runs.charts import draw_intervals
from posttrain.runs.curves import curves
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
            charts=curves(metrics, store.evaluations()),
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
