"""Samples as rows of a table, for libraries that show tables."""

from collections.abc import Sequence

from posttrain.components.trackers import Sample

COLUMNS = ("task", "prompt", "completion", "reward", "advantage", "answer", "status", "group", "sample", "stop_reason")
"""Names of the columns, which are fields of `Sample`."""


def rows_of(samples: Sequence[Sample]) -> list[list[str | float | int | None]]:
    """A row for each sample, with the values of `COLUMNS`."""
    return [[getattr(sample, name) for name in COLUMNS] for sample in samples]


def markdown(samples: Sequence[Sample]) -> str:
    """A table in Markdown. Texts are shown as they are: as code, with their line ends as ↵."""
    lines = [" | ".join(COLUMNS), " | ".join("---" for _ in COLUMNS)]
    lines += [" | ".join(_cell(value) for value in row) for row in rows_of(samples)]
    return "\n".join(f"| {line} |" for line in lines)


def _cell(value: str | float | int | None) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return f"{value:.4g}"
    line = value.replace("\r\n", "\n").replace("\n", "↵").replace("|", "¦").replace("`", "´")
    return f"`{line}`" if line.strip() else ""
