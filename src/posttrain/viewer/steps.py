"""The steps of a run as a table that can be sorted by any column."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.errors import UserError
from posttrain.runs.amounts import percent
from posttrain.runs.readings import number

Page = dict[str, Any]

COLUMNS: Mapping[str, str] = {
    "solved": "solved",
    "reward": "reward",
    "loss": "loss",
    "completion_tokens": "length",
    "truncated": "truncated",
    "zero_variance": "zero variance",
    "grader_errors": "grader errors",
    "entropy": "entropy",
    "sampled_nll": "sampled NLL",
    "sampler_gap": "sampler gap",
    "gradient_norm": "gradient norm",
    "learning_rate": "learning rate",
    "tokens_per_second": "tokens/s",
    "seconds_total": "seconds",
}
"""Metrics and timings by name, with their titles; those of divergences (``kl/ROLE``) follow the entropy."""
SHARES = frozenset({"solved", "truncated", "zero_variance", "grader_errors"})


def table(
    metrics: Sequence[Mapping[str, Any]],
    timing: Mapping[int, Mapping[str, Any]],
    recorded: set[int],
    *,
    sort: str = "step",
    rising: bool = False,
    part: slice = slice(None),
) -> Page:
    """``columns`` with values anywhere, and `part` of the ``rows`` in order with their whole ``count``; a step without
    the number comes last either way.

    Raises `UserError` for a column that the run lacks.
    """
    entries = [{**own, **entry} if (own := timing.get(entry["step"])) else entry for entry in metrics]
    kls = sorted({key for entry in entries for key in entry if key.startswith("kl/")})
    titles = {key: title for name, title in COLUMNS.items() for key, title in _with_kls(name, title, kls)}
    known = {key: title for key, title in titles.items() if any(_number(entry, key) is not None for entry in entries)}
    if sort != "step" and sort not in known:
        raise UserError(f"sort must be one of {', '.join(['step', *known])}, got {sort!r}")
    having = [entry for entry in entries if _number(entry, sort) is not None]
    having.sort(key=lambda entry: (_number(entry, sort) or 0.0, entry["step"]), reverse=not rising)
    lacking = [entry for entry in entries if _number(entry, sort) is None]
    rows = [
        {
            "step": entry["step"],
            "stage": entry["stage"],
            "recorded": entry["step"] in recorded,
            "cells": [_shown(entry, key) for key in known],
        }
        for entry in (having + lacking)[part]
    ]
    return {"columns": [{"key": "step", "title": "step"}, *({"key": k, "title": t} for k, t in known.items())],
            "rows": rows, "count": len(entries), "sort": sort, "rising": rising}  # fmt: skip


def _with_kls(name: str, title: str, kls: Sequence[str]) -> list[tuple[str, str]]:
    after = [(key, f"KL {key.removeprefix('kl/')}") for key in kls] if name == "sampled_nll" else []
    return [(name, title), *after]


def _number(entry: Mapping[str, Any], key: str) -> float | None:
    value = entry.get(key)
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _shown(entry: Mapping[str, Any], key: str) -> str:
    value = _number(entry, key)
    if value is None:
        return ""
    return percent(value) if key in SHARES else number(value)
