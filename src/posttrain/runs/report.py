"""``report.html``: a self-contained page about a run.

The page is made from the record alone, so it can be made again at any time, also of a run in progress.
"""

import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from posttrain.runs.amounts import duration, percent
from posttrain.runs.charts import draw_intervals
from posttrain.runs.curves import curves
from posttrain.runs.reading import DOCUMENT, read_own
from posttrain.runs.samples import compared_answers, last_rollouts
from posttrain.runs.store import REPAIRS, RunStore
from posttrain.runs.summary import describe_gain, seconds_by_phase, summarize

Entry = Mapping[str, Any]

_MOST_TEXT = 4000
_MOST_EVENTS = 200
_UNSEEN = (
    *((0x80, 0x9F), (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0E), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF9, 0xFFFB), (0xE0000, 0xE0FFF)),
)
"""First and last codes of characters without a shape: Unicode's Default_Ignorable_Code_Point, C1 controls, separators
of lines. The selector of emoji, U+FE0F, is left as it is.
"""
_SHAPES: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"},
    127: 0x2421,
    **{code: f"[U+{code:04X}]" for first, last in _UNSEEN for code in range(first, last + 1)},
}


def write_report(folder: Path) -> Path:
    """Make ``report.html`` in a run's folder; return its path."""
    with RunStore.open(folder, reading=True) as store:
        metrics, timing = store.metrics(), store.timing()
        summary = summarize(store, metrics)
        page = _template().render(
            style=Markup(asset("report.css")),
            script=Markup(asset("report.js")),
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
            recipe=read_own(store.folder / "recipe.yaml", DOCUMENT).decode("utf-8", "replace"),
            again=f"posttrain run {shlex.quote(str(store.folder))}",
            command=shlex.join(map(str, store.environment().get("command", []))),
        )
        return store.write_document("report.html", page)


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"percent": percent, "duration": duration, "visible": visible, "shortened": shortened}
    return environment.from_string(asset("report.html"))


def visible(text: str) -> str:
    """The text with what cannot be seen replaced, except tabs and line ends: control characters by their symbols, and
    characters without a shape, or that turn the direction of writing, by their code, as in ``[U+202E]``.
    """
    return text.translate(_SHAPES)


def shortened(text: str) -> str:
    """The text, with its middle left out if it is very long."""
    if len(text) <= _MOST_TEXT:
        return text
    half = _MOST_TEXT // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def asset(name: str) -> str:
    """The content of a file in the folder of this module."""
    return resources.files("posttrain.runs").joinpath(name).read_text(encoding="utf-8")


def _verdict(gain: Entry | None) -> str:
    """The side of zero that the interval of a gain is on, if it is on one."""
    if gain is None or gain["interval"][0] <= 0 <= gain["interval"][1]:
        return "unclear"
    return "better" if gain["interval"][0] > 0 else "worse"


def _intervals(summary: Entry) -> Markup:
    """The chart of the accuracies and their intervals; empty if there are none."""
    rows = [
        (when, summary[f"accuracy_{when}"], summary[f"accuracy_{when}_interval"])
        for when in ("before", "after")
        if summary[f"accuracy_{when}"] is not None
    ]
    return draw_intervals(rows) if rows else Markup("")


def _notable(history: Sequence[Entry]) -> list[Entry]:
    """Events of the process for the report: interruptions, resumes, changes, repairs."""
    return [entry for entry in history if entry["kind"] in ("repaired", *REPAIRS)]


def _phases(timing: Sequence[Entry]) -> list[dict[str, Any]]:
    """Seconds by phase, the longest first, with their share."""
    phases = seconds_by_phase(timing)
    total = sum(phases.values())
    ordered = sorted(phases.items(), key=lambda item: -item[1])
    return [{"name": name, "seconds": s, "share": s / total if total else 0.0} for name, s in ordered]


def _machine(environment: Entry) -> list[tuple[str, str]]:
    """Machine and software of the run, as names and texts."""
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
