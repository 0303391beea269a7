"""Values of the rows of a Parquet file, measured before they are unpacked, since a small file can unpack to any size.

The number of rows is in the file's metadata. The size of each row is computed by DuckDB from lengths, which copies no
text, ahead of the rows themselves: DuckDB copies `VECTOR` rows at a time.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from posttrain.errors import UserError

LARGEST_FOOTER = 64 << 20
"""Bytes of a file's metadata, which is read at once."""
LARGEST_VECTOR = 256 << 20
"""Bytes of the rows that are copied at once."""
VECTOR = 2048
_AHEAD = 3 * VECTOR
"""Rows that are measured before the first of them is copied: DuckDB may be ahead of what is asked for."""
_PIECE = 100
_VALUE = 32
"""Bytes of a number in Python, and of a text without its characters."""
_NESTED = {"list", "array", "struct", "map"}
_SOURCE = "read_parquet(?, hive_partitioning = false)"


def count_rows(path: Path) -> int:
    """The number of rows, by the metadata. Raises `UserError` where that cannot be read."""
    connection, name = _opened(path)
    with connection:
        [(count,)] = connection.execute("SELECT sum(num_rows) FROM parquet_file_metadata(?)", [name]).fetchall()
    return int(count or 0)


def read_values(path: Path, longest: int) -> Iterator[dict[str, Any]]:
    """The values of each row, by column. Raises `UserError` for a row of more than `longest` bytes.

    Raises whatever DuckDB raises for a file that is no Parquet.
    """
    connection, name = _opened(path)
    with connection:
        found = connection.execute(f"SELECT * FROM {_SOURCE} LIMIT 0", [name]).description or ()
        columns = [str(column) for column, *_ in found]
        sizes = connection.cursor().execute(f"SELECT {_sizes(found)} FROM {_SOURCE}", [name])
        measured = _measure(sizes, path, 0, _AHEAD, longest)
        rows, read = connection.execute(f"SELECT * FROM {_SOURCE}", [name]), 0
        while piece := rows.fetchmany(_PIECE):
            yield from (dict(zip(columns, values, strict=True)) for values in piece)
            read += len(piece)
            if read + _AHEAD > measured:
                measured = _measure(sizes, path, measured, VECTOR, longest)


def _opened(path: Path) -> tuple[Any, str]:
    """A connection that takes little memory and one vector at a time, and the file's name as no pattern."""
    import duckdb

    _check_footer(path)
    connection = duckdb.connect(config={"memory_limit": "1GB", "threads": 1})
    connection.execute("SET temp_directory = ''")
    connection.execute("SET streaming_buffer_size = '1KB'")
    return connection, re.sub(r"([\[*?])", r"[\1]", str(path.absolute()))


def _check_footer(path: Path) -> None:
    """Raise `UserError` for metadata of absurd size: the last 8 bytes are its length and a mark."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - 8, 0))
        length = int.from_bytes(file.read(4), "little")
    if size > LARGEST_FOOTER and length > LARGEST_FOOTER:
        raise UserError(f"{path}: its metadata has {length:,} bytes, and at most {LARGEST_FOOTER:,} are read")


def _sizes(description: Sequence[Any]) -> str:
    """What computes the bytes of a row."""
    quoted = ((str(name).replace('"', '""'), kind) for name, kind, *_ in description)
    return " + ".join(_size(f'"{name}"', kind, 0) for name, kind in quoted)


def _size(value: str, kind: Any, depth: int) -> str:
    """What computes the bytes of a value of this type."""
    match kind.id:
        case "varchar":
            return f"coalesce(strlen({value}), 0) + {_VALUE}"
        case "blob":
            return f"coalesce(octet_length({value}), 0) + {_VALUE}"
        case "struct":
            fields = [(name.replace("'", "''"), inner) for name, inner in kind.children]
            return " + ".join(_size(f"struct_extract({value}, '{name}')", inner, depth) for name, inner in fields)
        case "map":
            parts = zip(("map_keys", "map_values"), kind.children, strict=True)
            return " + ".join(_size_of_list(f"{part}({value})", inner, depth) for part, (_, inner) in parts)
        case "list" | "array":
            return _size_of_list(value, kind.children[0][1], depth)
        case _:
            return str(_VALUE)


def _size_of_list(value: str, inner: Any, depth: int) -> str:
    if inner.id in _NESTED or inner.id in ("varchar", "blob"):
        item = f"item_{depth}"
        total = f"list_sum([{_size(item, inner, depth + 1)} for {item} in {value}])"
    else:
        total = f"len({value}) * {_VALUE}"
    return f"coalesce({total}, 0) + 2 * {_VALUE}"


def _measure(sizes: Any, path: Path, measured: int, count: int, longest: int) -> int:
    """Measure the next `count` rows; the number of all that were. Raises `UserError` for too many bytes."""
    found = [int(size or 0) for (size,) in sizes.fetchmany(count)]
    for number, size in enumerate(found, measured + 1):
        if size > longest:
            raise UserError(
                f"{path} row {number}: it has {size:,} bytes when it is unpacked, and at most {longest:,} are read"
            )
    for begin in range(0, len(found), VECTOR):
        if (together := sum(found[begin : begin + VECTOR])) > LARGEST_VECTOR:
            raise UserError(
                f"{path} rows {measured + begin + 1} to {measured + begin + VECTOR}: they have {together:,} bytes when "
                f"they are unpacked, and at most {LARGEST_VECTOR:,} are read at once; save them as JSON lines (.jsonl)"
            )
    return measured + len(found)
