"""Fetches the rows of a query, within a bound: a table of a few kilobytes can unpack to gigabytes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from posttrain.errors import RunFailed

if TYPE_CHECKING:
    import duckdb

_TOGETHER = 32
"""Rows that are fetched at a time."""


def check_size(connection: "duckdb.DuckDBPyConnection", query: str, values: Sequence[object], largest: int) -> None:
    """Raise `RunFailed` where the rows of a query hold more than this many bytes; it is asked for their lengths only.

    The database copies two thousand rows at a time, whatever they hold, before the first can be read.
    """
    described = connection.execute(f"SELECT * FROM ({query}) LIMIT 0", values).description
    lengths = [_length(name, str(kind)) for name, kind, *_ in described]
    asked = f"SELECT sum({' + '.join(['0', *filter(None, lengths)])}) FROM ({query})"
    [[size]] = connection.execute(asked, values).fetchall()
    if (size or 0) > largest:
        raise RunFailed(_too_large(largest))


def _length(name: str, kind: str) -> str:
    """SQL for the bytes of a cell; empty for numbers."""
    column = '"' + name.replace('"', '""') + '"'
    if kind in ("VARCHAR", "BLOB"):
        return f"coalesce(2 * {'strlen' if kind == 'VARCHAR' else 'octet_length'}({column}), 0)"
    return f"coalesce(8 * len({column}), 0)" if kind.endswith("[]") else ""


def _too_large(largest: int) -> str:
    return (
        f"the record of this run cannot be shown: these rows hold more than {largest >> 20:,} MiB, which no run writes"
    )


def fetched(result: "duckdb.DuckDBPyConnection", largest: int) -> list[dict[str, Any]]:
    """Rows of a query as dicts. Raises `RunFailed` where they take more than this many bytes."""
    names = [column[0] for column in result.description]
    rows: list[dict[str, Any]] = []
    left = largest
    while some := result.fetchmany(_TOGETHER):
        rows += [dict(zip(names, row, strict=True)) for row in some]
        left -= sum(_size(value) for row in some for value in row)
        if left < 0:
            raise RunFailed(_too_large(largest))
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
