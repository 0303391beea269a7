"""Fetches the rows of a query, within a bound: a table of a few kilobytes can unpack to gigabytes."""

from typing import TYPE_CHECKING, Any

from posttrain.errors import RunFailed

if TYPE_CHECKING:
    import duckdb

_TOGETHER = 32
"""Rows that are fetched at a time."""


def fetched(result: "duckdb.DuckDBPyConnection", largest: int) -> list[dict[str, Any]]:
    """Rows of a query as dicts. Raises `RunFailed` where they take more than so many bytes."""
    names = [column[0] for column in result.description]
    rows: list[dict[str, Any]] = []
    left = largest
    while some := result.fetchmany(_TOGETHER):
        rows += [dict(zip(names, row, strict=True)) for row in some]
        left -= sum(_size(value) for row in some for value in row)
        if left < 0:
            raise RunFailed(
                f"the record of this run cannot be shown: these rows hold more than {largest >> 20:,} MiB, which no "
                "run writes"
            )
    return rows


def _size(value: Any) -> int:
    """About the bytes that a value takes; a text is there twice while it is shown or sent."""
    if isinstance(value, str | bytes):
        return 2 * len(value)
    if isinstance(value, dict):
        return sum(map(_size, value.values()))
    if not isinstance(value, list) or not value:
        return 8
    return sum(map(_size, value)) if isinstance(value[0], str | list | dict) else 8 * len(value)
