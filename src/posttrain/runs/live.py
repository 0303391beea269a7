"""Live progress: a table on a terminal, plain lines elsewhere.

Lines are printed where there is no terminal, under ``CI`` and ``NO_COLOR``, and when standard output belongs to
``--json``; then they go to standard error. They become rarer as a run goes on, so that logs of days stay readable.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from posttrain.errors.foreign import printable
from posttrain.runs.loss_text import describe_losses
from posttrain.runs.readings import TimeLeft, clock, readings, sparkline

_CURVE = 24
_EVENTS = 4
_STYLES = {"alarm": "bold red", "warning": "yellow", "discard": "yellow"}


class LiveView:
    """Shows a run in progress. Every method may be called from the thread that trains."""

    def __init__(self, *, json: bool = False, lines: bool | None = None, console: Console | None = None) -> None:
        """Choose where and how to show.

        Args:
            json: Standard output is for JSON, so lines go to standard error.
            lines: Plain lines or the table; None decides by the terminal.
            console: Where to write; None takes standard output, or standard error with `json`.
        """
        self._console = console or Console(stderr=json, highlight=False)
        unsuited = json or "CI" in os.environ or "NO_COLOR" in os.environ or self._console.is_dumb_terminal
        self._lines = (unsuited or not self._console.is_terminal) if lines is None else lines
        self._lock = threading.Lock()
        self._live: Live | None = None
        self._recipe, self._total = "", 0
        self._stages: dict[str, int] = {}
        self._time_left = TimeLeft({})
        self._began = self._stepped = self._printed = time.monotonic()
        self._metrics: Mapping[str, Any] = {}
        self._timing: Mapping[str, Any] = {}
        self._left: float | None = None
        self._history: dict[str, list[float]] = {}
        self._evaluations: list[tuple[str, Mapping[str, Any]]] = []
        self._events: deque[tuple[str, str]] = deque(maxlen=_EVENTS)

    def start(self, recipe_name: str, total_steps: int, stages: Mapping[str, int]) -> None:
        """Begin with the recipe's name, the total number of steps, and the steps of each stage, in order."""
        self._recipe, self._total, self._stages = recipe_name, total_steps, dict(stages)
        self._time_left = TimeLeft(stages)
        self._began = self._stepped = time.monotonic()
        if self._lines:
            plan = ", ".join(f"{name} {steps}" for name, steps in stages.items())
            self._print_line(f"{recipe_name}: {total_steps} steps ({plan})")
        else:
            self._live = Live(
                get_renderable=self.render, console=self._console, refresh_per_second=2, vertical_overflow="visible"
            )
            self._live.start()

    def plan(self, stage: str, steps: int) -> None:
        """Change the number of steps of a stage that has begun."""
        with self._lock:
            self._total += steps - self._stages.get(stage, steps)
            self._stages[stage] = steps
            self._time_left = TimeLeft(self._stages)

    def step(self, metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Show a finished step: its metrics with ``step``, ``stage`` and ``stage_step``, and its timing."""
        stage, stage_step = metrics["stage"], metrics["stage_step"]
        now = time.monotonic()
        with self._lock:
            if stage != self._metrics.get("stage"):
                self._history = {}
            self._left = self._time_left.after(stage, stage_step, timing.get("seconds_total") or now - self._stepped)
            self._metrics, self._timing, self._stepped = metrics, timing, now
            for name, value in metrics.items():
                if isinstance(value, float | int):
                    self._history.setdefault(name, []).append(float(value))
        # A line every two seconds at first, then whenever the run has become 2 % longer; always at a stage's ends.
        due = now - self._printed >= max(2.0, 0.02 * (now - self._began))
        if self._lines and (due or stage_step in (1, self._stages.get(stage))):
            self._printed = now
            self._print_line(self._step_line())

    def evaluation(self, name: str, summary: Mapping[str, Any]) -> None:
        """Show the summary of a held-out evaluation."""
        with self._lock:
            self._evaluations.append((name, summary))
        if self._lines:
            self._print_line(f"held-out ({name}): {describe_evaluation(summary)}")

    def event(self, kind: str, message: str) -> None:
        """Show a note, an alarm or another event."""
        with self._lock:
            self._events.append((kind, message))
        if self._lines:
            self._print_line(f"{kind}: {message}")

    def close(self) -> None:
        """Stop the display, leaving the last state on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def render(self) -> RenderableType:
        """The table with the current values."""
        with self._lock:
            body: list[RenderableType] = [self._head(), Text(), self._table()]
            body += [
                Text.assemble((f"{kind}: ", _STYLES.get(kind, "dim")), message, overflow="fold")
                for kind, message in self._events
            ]
        title = Text.assemble(("posttrain", "bold"), f"  {self._recipe}")
        return Panel(
            Group(*body), title=title, title_align="left", border_style="dim", padding=(0, 1), width=self._width()
        )

    def _width(self) -> int:
        return min(self._console.width, 100)

    def _head(self) -> RenderableType:
        """Stage, step, and progress of the run."""
        done = int(self._metrics.get("step", 0))
        now = time.monotonic()
        where = Text("getting ready" if not done else "", style="dim")
        if done:
            stage = self._metrics["stage"]
            where = Text.assemble(
                (stage, "bold cyan"), f" {self._metrics['stage_step']}/{self._stages.get(stage, '?')}"
            )
            if len(self._stages) > 1 and stage in self._stages:
                where.append(f"  stage {list(self._stages).index(stage) + 1} of {len(self._stages)}", "dim")
        ended = done >= self._total
        left = "" if self._left is None or ended else f", {clock(max(0.0, self._left - (now - self._stepped)))} left"
        times = Text(f"{clock(now - self._began)}{left}", style="dim")
        bar = ProgressBar(total=max(self._total, 1), completed=done, complete_style="cyan", finished_style="green")
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True, justify="right")
        grid.add_row(where, bar, times)
        return grid

    def _table(self) -> RenderableType:
        """One row per quantity: name, value, curve, and related values."""
        width = max(0, min(_CURVE, self._width() - 70))  # the numbers come before the curves on a narrow terminal
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", no_wrap=True, min_width=8)
        grid.add_column(no_wrap=True)
        grid.add_column(style="cyan", no_wrap=True)
        grid.add_column(style="dim", overflow="fold")
        for reading in readings(self._metrics, self._timing):
            curve = sparkline(self._history.get(reading.metric, []), width)
            grid.add_row(reading.name, Text(reading.value, "bold"), curve, Text(" · ".join(reading.more)))
        if self._evaluations:
            name, summary = self._evaluations[-1]
            accuracies = [s["accuracy"] for _, s in self._evaluations if s.get("accuracy") is not None]
            losses = [s["held_out_loss"] for _, s in self._evaluations if s.get("held_out_loss") is not None]
            details = [f"after {name}" if name != "before" else name]
            if len(self._evaluations) > 1 and (accuracies or losses):
                began = f"{100 * accuracies[0]:.1f} %" if accuracies else f"{losses[0]:.3f} nats"
                details.append(f"began at {began}")
            value = Text(describe_evaluation(summary, short=True), "bold green")
            grid.add_row("held-out", value, sparkline(accuracies or losses, width), Text(" · ".join(details)))
        return grid

    def _step_line(self) -> str:
        """A step as one line of text."""
        stage = self._metrics["stage"]
        parts = [f"{stage} {self._metrics['stage_step']}/{self._stages.get(stage, '?')}"]
        for reading in readings(self._metrics, self._timing):
            named = (
                reading.value
                if reading.name in ("groups", "speed", "divergence")
                else f"{reading.name} {reading.value}"
            )
            parts.append(named + (f" ({', '.join(reading.more)})" if reading.more else ""))
        if self._left is not None:
            parts.append(f"{clock(self._left)} left")
        return "  ".join(parts)

    def announce(self, text: str) -> None:
        """Print a note before the first step, such as how the data was read."""
        if text:
            self._print_line(text)

    def _print_line(self, line: str) -> None:
        self._console.print(printable(line), markup=False, highlight=False, soft_wrap=True)


def describe_evaluation(summary: Mapping[str, Any], *, short: bool = False) -> str:
    """``41.5 % [34.9, 48.4] of 200 tasks, pass@8 60.0 %, 1 not scored``, and losses; only the first part when short."""
    accuracy, interval = summary.get("accuracy"), summary.get("accuracy_interval")
    losses = describe_losses(summary)
    if losses and not summary.get("tasks"):
        return losses[0] if short else "; ".join(losses)
    text = "no answer could be scored" if accuracy is None else f"{100 * accuracy:.1f} %"
    if interval:
        text += f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"
    if short:
        return text
    parts = [f"{text} of {summary['tasks']} tasks"]
    pass_at_k = summary.get("pass_at_k") or {}
    best = max(pass_at_k, key=int, default=None)
    if best is not None and pass_at_k[best] is not None:
        parts.append(f"pass@{best} {100 * pass_at_k[best]:.1f} %")
    searched = summary.get("searched") or {}
    if searched.get("accuracy") is not None:
        parts.append(f"{100 * searched['accuracy']:.1f} % by search")
    candidates = summary.get("candidates") or {}
    if candidates.get("accuracy") is not None:
        parts.append(f"{100 * candidates['accuracy']:.1f} % by the likeliest candidate")
    if summary.get("errors"):
        parts.append(f"{summary['errors']} not scored")
    return "; ".join([", ".join(parts), *losses])
