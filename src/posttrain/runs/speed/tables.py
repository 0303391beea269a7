"""Benchmark figures as rows, for the terminal and docs/performance.md."""

from collections.abc import Mapping, Sequence
from typing import Any

COLUMNS = ("figure", "measured", "of the limit", "rounds")
NAMES = {
    "limit_sampling": "best matrix product, sampling",
    "limit_learning": "best matrix products, learning",
    "limit_memory": "copying memory",
    "sampling": "sampling",
    "learning": "learner",
    "grpo": "GRPO, end to end",
    "peak_memory": "peak memory of GRPO",
    "memory_sampling": "peak memory while sampling",
    "memory_learning": "peak memory while learning",
    "growth": "sampling",
    "growth_ratio": "sampling with many requests waiting, against few",
    "start_up": "start to first token",
}


def rows(figures: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """One row per figure, in the order of `COLUMNS`."""
    found = []
    for figure in figures:
        found.append([describe(figure), number(figure["value"], figure["unit"]), _share(figure), _spread(figure)])
        for name, value in figure.get("parts", {}).items():
            found.append([f"    {name}", number(value, figure["unit"]), f"{value / figure['value']:.0%} of it", ""])
    return found


def describe(figure: Mapping[str, Any]) -> str:
    """What a figure is of."""
    parts = [NAMES.get(figure["measure"], figure["measure"])]
    parts += [str(figure[name]) for name in ("size", "dtype", "workload", "start") if name in figure]
    if "batch" in figure:
        parts.append(f"batch {figure['batch']}")
    if figure["measure"] == "growth":
        parts.append(f"{figure['waiting']} waiting")
    return ", ".join(parts)


def number(value: float, unit: str) -> str:
    """A value with its significant digits."""
    if unit == "ratio":
        return f"{value:.2f}"
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _share(figure: Mapping[str, Any]) -> str:
    shares = []
    if "share" in figure:
        shares.append(f"{figure['share']:.0%} arithmetic")
    if "share_of_memory" in figure:
        shares.append(f"{figure['share_of_memory']:.0%} memory")
    return ", ".join(shares)


def _spread(figure: Mapping[str, Any]) -> str:
    """The least and the most of the rounds."""
    values = figure.get("rounds")
    return f"{len(values)}: {min(values):,.4g} to {max(values):,.4g}" if values else ""
