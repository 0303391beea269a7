"""The metrics of a step as text with names and units, and the time left."""

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One quantity of a step as text."""

    name: str
    value: str
    more: tuple[str, ...] = ()
    """Related values."""
    metric: str = ""
    """The metric that is drawn as its curve."""


def readings(metrics: Mapping[str, Any], timing: Mapping[str, Any]) -> list[Reading]:
    """The quantities of a step, the most important first, without those that were not measured."""
    found: list[Reading] = []

    def add(name: str, metric: str, value: str, *more: str) -> None:
        if metrics.get(metric) is not None:
            found.append(Reading(name=name, value=value, more=tuple(part for part in more if part), metric=metric))

    def share(metric: str, name: str, always: bool = True) -> str:
        value = metrics.get(metric)
        return f"{name} {100 * value:.0f} %" if value is not None and (always or value > 0) else ""

    def number_of(metric: str, name: str) -> str:
        value = metrics.get(metric)
        return f"{name} {number(value)}" if value is not None else ""

    parts = [f"{key.removeprefix('reward/')} {number(v)}" for key, v in metrics.items() if key.startswith("reward/")]
    kls = [f"KL {key.removeprefix('kl/')} {number(v)}" for key, v in metrics.items() if key.startswith("kl/")]
    errors = share("grader_errors", "grader errors", always=False)
    add("loss", "loss", number(metrics.get("loss")), number_of("learning_rate", "learning rate"))
    imitated = metrics.get("demonstrated/loss", metrics.get("experts/loss"))
    if imitated is not None:
        both = number_of("sampled/loss", "of rollouts"), share("share/demonstrated", "share")
        name = "demonstrated/loss" if "demonstrated/loss" in metrics else "experts/loss"
        add("imitation", name, number(imitated), *both)
    add("reward", "reward", number(metrics.get("reward")), *parts, errors)
    length = metrics.get("completion_tokens")
    add("length", "completion_tokens", f"{length or 0:.0f} tokens", share("truncated", "truncated"))
    add("groups", "zero_variance", share("zero_variance", "zero-variance"))
    add("entropy", "entropy", f"{number(metrics.get('entropy'))} nats", *kls)
    if "entropy" not in metrics and kls:
        found.append(Reading(name="divergence", value=kls[0], more=tuple(kls[1:])))
    speed, memory = timing.get("tokens_per_second"), timing.get("peak_memory_bytes")
    found_costs = [f"{speed:,.0f} tokens/s" if speed else "", f"{memory / 2**20:,.0f} MiB" if memory else ""]
    costs = [text for text in found_costs if text]
    if costs:
        found.append(Reading(name="speed" if speed else "memory", value=costs[0], more=tuple(costs[1:])))
    return found


def number(value: float | None) -> str:
    """A number with three significant digits; a dash for None."""
    if value is None:
        return "-"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 0.001 or size == 0:
        return f"{value:.3f}"[:5].rstrip(".") if size < 10 else f"{value:.1f}"
    return f"{value:.1e}"


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve of some numbers in one line of block characters, scaled from the least to the greatest."""
    if len(values) < 2 or width < 2:
        return ""
    count = min(width, len(values))
    bounds = [i * len(values) // count for i in range(count + 1)]
    means = [statistics.fmean(values[a:b]) for a, b in pairwise(bounds)]
    low, high = min(means), max(means)
    if high == low:
        return "▄" * count
    return "".join("▁▂▃▄▅▆▇█"[min(7, int(8 * (mean - low) / (high - low)))] for mean in means)


def clock(seconds: float) -> str:
    """``0:42``, ``12:05``, ``3:07:00``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"


class TimeLeft:
    """Estimates the remaining seconds from the median of the latest steps, by stage.

    A stage that has not begun is taken to be as fast as the one in progress.
    """

    def __init__(self, stages: Mapping[str, int]) -> None:
        """`stages` are the numbers of steps by stage, in order."""
        self._stages = dict(stages)
        self._stage = ""
        self._recent: deque[float] = deque(maxlen=21)

    def after(self, stage: str, stage_step: int, seconds: float) -> float:
        """Seconds left after a step of a stage that took `seconds`."""
        if stage != self._stage:
            self._stage = stage
            self._recent.clear()
        self._recent.append(seconds)
        names = list(self._stages)
        later = names[names.index(stage) + 1 :] if stage in names else []
        steps = self._stages.get(stage, stage_step) - stage_step + sum(self._stages[name] for name in later)
        return max(steps, 0) * statistics.median(self._recent)
