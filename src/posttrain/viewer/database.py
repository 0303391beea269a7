"""The database that answers queries: one in memory, kept so that what it learned of files is not read again.

It holds the footers of Parquet files by name and time of change, and the tables of searches that go on.
"""

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from posttrain.errors import RunFailed, UserError
from posttrain.runs.rows import check_size, fetched
from posttrain.runs.tables import new_connection

if TYPE_CHECKING:
    import duckdb

Row = dict[str, Any]
MEMORY = "1GB"
"""What all queries may take; one that needs more is refused, whatever a table unpacks to."""

LARGEST = 512 * 2**20
"""Bytes of an answer at most. The rollouts of a group of the largest models have a tenth of it."""

_lock = threading.Lock()
_kept: "duckdb.DuckDBPyConnection | None" = None
_number = 0


def number() -> int:
    """The number of the database, which changes when it is made anew: its tables are gone then."""
    return _number


def query(sql: str, values: Sequence[object] = (), *, whole: bool = False) -> list[Row]:
    """Rows as dicts. What gives `whole` texts and tokens is asked for their lengths first.

    Raises `UserError` for an invalid regular expression, and `RunFailed` for tables that cannot be read: damaged
    ones, those of a version with other columns, and those whose answer would be larger than any page.
    """
    if whole:
        with _asked("SELECT 1", ()) as connection:
            check_size(connection, sql, list(values), LARGEST)
    with _asked(sql, values) as result:
        return fetched(result, LARGEST)


def column(sql: str, values: Sequence[object] = ()) -> npt.NDArray[Any]:
    """The only column of what a query gives. Raises as `query` does."""
    with _asked(sql, values) as result:
        [found] = result.fetchnumpy().values()
        return np.ma.getdata(found)


@contextmanager
def _asked(sql: str, values: Sequence[object]) -> "Iterator[duckdb.DuckDBPyConnection]":
    import duckdb

    connection = _connection()
    try:
        yield connection.cursor().execute(sql, list(values))
    except duckdb.Error as error:
        if isinstance(error, duckdb.InvalidInputException) and "regexp_" in sql:
            raise UserError(f"not a regular expression of RE2: {error}") from None
        _forget(connection)  # an internal error would make it refuse all queries
        raise RunFailed(f"the record of this run cannot be read: {error}") from error


def _connection() -> "duckdb.DuckDBPyConnection":
    global _kept, _number
    with _lock:
        if _kept is None:
            _kept = new_connection()
            _kept.execute(
                f"SET threads = {min(4, os.cpu_count() or 1)}; SET memory_limit = '{MEMORY}'; "
                "SET parquet_metadata_cache = true; SET enable_external_file_cache = false"
            )
            _number += 1
        return _kept


def _forget(connection: "duckdb.DuckDBPyConnection") -> None:
    global _kept
    with _lock:
        if _kept is connection:
            _kept = None
