"""Usual settings of a model's size and method, computed from published ones (``published.yaml``).

The rule: of a family's settings, those of the five nearest sizes (by the ratio of the number of weights). ``auto`` is
the geometric mean of their rates. The usual range reaches from a third of the lowest to three times the highest. A rate
that leaves the range by another factor of three is far outside.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, Final

from posttrain.recipes.plain_yaml import load_yaml

SMALLEST: Final = 10_000_000
"""Weights of the smallest model that the rule is for. The table begins at 135 million; a model of 800,000, such as the
bundled one, learns with rates a hundred times as high."""
FILE: Final = Path(__file__).parent / "published.yaml"
NEAREST: Final = 5
MARGIN: Final = 3.0

FAMILIES: Final[Mapping[tuple[str, str], str]] = {
    ("rl", "learner"): "reinforcement",
    ("rl", "by_role"): "reinforcement",
    ("rl", "expert_learner"): "supervised",
    ("rl", "critic_learner"): "value",
    ("sft", "learner"): "supervised",
    ("preference", "learner"): "preference",
    ("reward_model", "learner"): "reward",
    ("value_model", "learner"): "value",
    ("progress", "learner"): "value",
}
"""Family of a learner, by the kind of its stage and its field there."""


@dataclass(frozen=True, kw_only=True)
class Usual:
    """The usual learning rates of a size and method."""

    rate: float
    """What ``auto`` stands for."""
    low: float
    high: float
    warmup: float
    """Share of the steps."""
    sources: tuple[str, ...]

    def is_far(self, rate: float) -> bool:
        """Whether a rate is far outside the range."""
        return not self.low / MARGIN <= rate <= self.high * MARGIN

    def __str__(self) -> str:
        """The range and where it is from."""
        more = f" and {len(self.sources) - 2} more" if len(self.sources) > 2 else ""
        return f"{self.low:.1g} to {self.high:.1g} by {'; '.join(self.sources[:2])}{more}"


@cache
def published() -> Mapping[str, Any]:
    """The content of the table."""
    content, _ = load_yaml(FILE.read_text(encoding="utf-8"), FILE.name)
    assert isinstance(content, Mapping), "the file is part of the package"
    return content


@cache
def usual(family: str, parameters: int, *, lora: bool) -> Usual | None:
    """The usual rates of a family for a model of that many weights; None for a model that the table is not about."""
    if parameters < SMALLEST:
        return None
    rows = [row for row in published()["settings"] if row["family"] == family]
    own = [row for row in rows if row.get("lora", False) == lora]
    factor = published()["lora_factor"] if lora and not own else {"value": 1.0}
    near = _nearest(own or [row for row in rows if not row.get("lora", False)], parameters)
    if not near:
        return None
    rates = [row["lr"] * factor["value"] for row in near]
    warmups = [row["warmup"] for row in near if "warmup" in row]
    sources = [row["source"] for row in near] + ([factor["source"]] if "source" in factor else [])
    return Usual(
        rate=_rounded(math.exp(sum(map(math.log, rates)) / len(rates))),
        low=_rounded(min(rates) / MARGIN),
        high=_rounded(max(rates) * MARGIN),
        warmup=median(warmups) if warmups else 0.0,
        sources=tuple(dict.fromkeys(sources)),
    )


def usual_max_tokens(context: int) -> tuple[int, str]:
    """Tokens of a completion, at most half the model's context, and where the number is from."""
    row = published()["max_tokens"]
    return min(row["value"], max(context // 2, 1)), row["source"]


def _nearest(rows: Sequence[Mapping[str, Any]], parameters: int) -> list[Mapping[str, Any]]:
    """The settings of the nearest sizes, the nearest first."""

    def distance(row: Mapping[str, Any]) -> float:
        return abs(math.log(row["size"] * 1e6 / parameters))

    return sorted(rows, key=distance)[:NEAREST]


def _rounded(rate: float) -> float:
    """A rate with two digits."""
    return float(f"{rate:.1e}")
