"""What `benchmarks.rewards` measures of a reward."""

from dataclasses import dataclass, field

from posttrain.statistics.intervals import wilson


@dataclass
class Row:
    """What was measured of a reward."""

    name: str
    cases: int = 0
    false_negatives: str = ""
    false_positives: str = ""
    values: dict[str, float] = field(default_factory=dict)
    errors: int = 0
    left_out: int = 0
    finds: list[str] = field(default_factory=list)
    wrong_finds: list[str] = field(default_factory=list)
    searched: int = 0
    a_second: float = 0.0
    memory_mib: float = 0.0


def share(count: int, total: int) -> str:
    """A share in percent with its interval."""
    interval = wilson(count, total)
    return f"{count} of {total}: {100 * count / total:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
