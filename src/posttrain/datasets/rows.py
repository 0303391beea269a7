"""Rows of data as they lie in files: JSON lines, JSON, CSV, TSV, Parquet. Each row knows its place, for messages."""

import csv
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from posttrain.datasets.values import plain
from posttrain.errors import UserError

LONGEST_CELL = 2**31 - 1


class Row(NamedTuple):
    """One row and where it was found."""

    values: Mapping[str, Any]
    file: str
    unit: str
    """What `number` counts, from 1: ``line`` where a row is a line, else ``row``."""
    number: int

    @property
    def place(self) -> str:
        """File and line, as messages show it."""
        return f"{self.file} {self.unit} {self.number}"


def read_file(path: Path) -> Iterator[Row]:
    """The rows of one file, read as its ending says. Raises `UserError` with the line of whatever is wrong."""
    try:
        yield from READERS[path.suffix.lower()](path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from None


def as_row(values: Any, file: str, unit: str, number: int) -> Row:
    """A row whose values JSON can hold; `UserError` for what is no row or holds something else."""
    if not isinstance(values, Mapping):
        got = type(values).__name__
        raise UserError(f"{file} {unit} {number}: a row is an object with named values, but this is {_article(got)}")
    clean = {}
    for column, value in values.items():
        try:
            clean[column] = plain(value)
        except TypeError as error:
            raise UserError(
                f"{file} {unit} {number}: column '{column}' holds {_article(str(error))}, which cannot be "
                "read; remove the column"
            ) from None
    return Row(clean, file, unit, number)


def _article(type_name: str) -> str:
    known = {"list": "a list", "str": "text", "int": "a number", "float": "a number", "bool": "true or false"}
    return known.get(type_name, "null" if type_name == "NoneType" else f"a value of type {type_name}")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line, its end included; a byte order mark is dropped."""
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                byte = f"byte 0x{raw[error.start]:02x} at column {error.start + 1}"
                raise UserError(f"{path} line {number}: {byte} is not UTF-8; save the file as UTF-8") from None


def _json_lines(path: Path) -> Iterator[Row]:
    for number, text in _lines(path):
        if text.strip():
            try:
                values = json.loads(text.rstrip(), parse_constant=_refuse_constant)
            except (ValueError, RecursionError) as error:
                hint = "; each line holds one JSON object" if number == 1 else ""
                raise _not_json(error, path, number, hint) from None
            yield _whole_characters(as_row(values, str(path), "line", number), "\\u" in text)


def _json(path: Path) -> Iterator[Row]:
    """An array of objects, an object with the array under ``data``, or JSON lines under the name of JSON."""
    text = "".join(line for _, line in _lines(path))
    if not text.strip():
        return
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError) and error.msg == "Extra data" and text.lstrip().startswith("{"):
            yield from _json_lines(path)
            return
        raise _not_json(error, path, 1) from None
    rows = document.get("data") if isinstance(document, dict) else document
    if not isinstance(rows, list):
        found = (
            f"an object with {_names(document)}" if isinstance(document, dict) else _article(type(document).__name__)
        )
        raise UserError(f'{path}: rows are an array of objects, or {{"data": [...]}}; this file holds {found}')
    escaped = "\\u" in text
    for number, values in enumerate(rows, 1):
        yield _whole_characters(as_row(values, str(path), "row", number), escaped)


def _names(values: Mapping[str, Any]) -> str:
    return ", ".join(f"'{name}'" for name in list(values)[:10]) or "nothing"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value; write null or a text")


def _whole_characters(row: Row, escaped: bool) -> Row:
    r"""Refuse half of a character, which JSON can spell (``\ud800``) but no tokenizer and no file can hold."""
    if escaped:
        try:
            json.dumps(row.values, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"\\u{ord(error.object[error.start]):04x}"
            raise UserError(f"{row.place}: {half} is half of a character (an unpaired surrogate)") from None
    return row


def _not_json(error: Exception, path: Path, first_line: int, hint: str = "") -> UserError:
    if isinstance(error, json.JSONDecodeError):
        line = first_line + error.lineno - 1
        return UserError(f"{path} line {line}, column {error.colno}: not JSON: {error.msg}{hint}")
    reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return UserError(f"{path} line {first_line}: cannot be read as JSON: {reason}")


def _csv(path: Path) -> Iterator[Row]:
    return _separated(path, ",")


def _tsv(path: Path) -> Iterator[Row]:
    return _separated(path, "\t")


def _separated(path: Path, delimiter: str) -> Iterator[Row]:
    """The first line names the columns. An empty cell is no value; all others are text."""
    csv.field_size_limit(LONGEST_CELL)
    reader = csv.reader((text for _, text in _lines(path)), delimiter=delimiter, strict=True)
    header = _next_cells(reader, path) or []
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise UserError(f"{path} line 1: two columns are named '{twice}'")
    while (number := reader.line_num + 1) and (cells := _next_cells(reader, path)) is not None:
        if cells and len(cells) != len(header):
            raise UserError(
                f"{path} line {number}: {len(cells)} cells, but the first line names {len(header)} columns; "
                'put a cell that holds the separator or a line break in "quotes"'
            )
        if cells:
            yield Row({name: cell or None for name, cell in zip(header, cells, strict=True)}, str(path), "line", number)


def _next_cells(reader: Any, path: Path) -> list[str] | None:
    try:
        cells: list[str] | None = next(reader, None)
    except csv.Error as error:
        raise UserError(f"{path} line {reader.line_num}: the cells cannot be told apart: {error}") from None
    return cells


def _parquet(path: Path) -> Iterator[Row]:
    import duckdb

    not_a_pattern = re.sub(r"([\[*?])", r"[\1]", str(path.absolute()))
    with duckdb.connect() as connection:
        try:
            found = connection.execute("SELECT * FROM read_parquet(?, hive_partitioning = false)", [not_a_pattern])
            columns = [column[0] for column in found.description or ()]
            number = 0
            while rows := found.fetchmany(1000):
                for values in rows:
                    number += 1
                    yield as_row(dict(zip(columns, values, strict=True)), str(path), "row", number)
        except duckdb.Error as error:
            raise UserError(f"{path} cannot be read as Parquet: {str(error).splitlines()[0]}") from None


READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
}
"""What reads a file, by its ending."""
