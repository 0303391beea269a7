"""Rows from Python objects: lists, data sets, data frames, generators. A run reads them from a file.

They are written as JSON lines: dates become text, NaN becomes null, arrays become lists, as in
`posttrain.datasets.values.plain`. A value that JSON cannot represent is refused with its row and column.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from posttrain.datasets.rows import Row, as_row
from posttrain.datasets.sources import of_dataset
from posttrain.errors import UserError

_LIBRARIES = ("datasets", "pandas", "polars", "pyarrow")
"""Packages whose data sets and frames are supported, without importing them."""


def is_data(value: Any) -> bool:
    """Whether a value has rows: any iterable except text and mappings."""
    plain = isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)
    return plain or _library(value) in _LIBRARIES


def to_json_lines(data: Any, name: str = "tasks") -> bytes:
    """The rows as JSON lines; a generator is read once, to its end. `name` is the name of the data in messages.

    Raises `UserError` for an invalid row, for a value that JSON cannot represent, and if there are no rows.
    """
    lines = [_line(row) for row in rows_of(data, name)]
    if not lines:
        raise UserError(f"{name} holds no rows; give at least two, for example [{{'prompt': '2+3=', 'answer': '5'}}]")
    return b"".join(lines)


def rows_of(data: Any, name: str = "tasks") -> Iterator[Row]:
    """The rows of a list or another iterable of mappings or prompts, a ``datasets`` data set, or a data frame."""
    if _library(data) == "datasets":
        yield from of_dataset(data, name, None).rows
        return
    if not is_data(data):
        raise UserError(f"{name} is a {type(data).__name__}; give a list of rows, a data set, a data frame, or a path")
    for number, item in enumerate(_items(data), start=1):
        yield as_row({"prompt": item} if isinstance(item, str) else item, name, "row", number)


def _library(value: Any) -> str:
    """The package that a value's class comes from."""
    return type(value).__module__.partition(".")[0]


def _items(data: Any) -> Iterable[Any]:
    """A data frame's rows as mappings; other data unchanged."""
    match _library(data), type(data).__name__:
        case "pandas", "DataFrame":
            records: Iterable[Any] = data.to_dict("records")
        case "polars", "DataFrame":
            records = data.iter_rows(named=True)
        case "polars", "LazyFrame":
            records = data.collect().iter_rows(named=True)
        case "pyarrow", "Table":
            records = data.to_pylist()
        case _:
            records = data
    return records


def _line(row: Row) -> bytes:
    """A row as a line of JSON. Raises `UserError` for keys that are not text, and for half a character."""
    for column, value in row.values.items():
        if key := _odd_key(value):
            raise UserError(
                f"{row.place}: column '{column}' holds a mapping with the key {key[0]!r}; keys of JSON are text"
            )
    try:
        return json.dumps(row.values, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        raise UserError(f"{row.place}: {half} is half of a character (an unpaired surrogate)") from None


def _odd_key(value: Any) -> list[Any]:
    """The first nested key that is not text, in a list; an empty list if there is none."""
    if isinstance(value, Mapping):
        own = [key for key in value if not isinstance(key, str)]
        return own[:1] or next((found for item in value.values() if (found := _odd_key(item))), [])
    if isinstance(value, list | tuple):
        return next((found for item in value if (found := _odd_key(item))), [])
    return []
