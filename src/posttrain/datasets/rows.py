"""Rows of data files: JSON lines, JSON, CSV, TSV, Parquet. Each row has its place, for messages."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from posttrain.datasets.parquet import count_rows, read_values
from posttrain.datasets.values import plain
from posttrain.errors import UserError
from posttrain.errors.foreign import check_file, guard, parse_json, shown

LONGEST_ROW = 16 << 20
"""Bytes of one row: of its line, or of its texts."""
MOST_VALUES = 1_000_000
"""Values of a row of JSON lines: its tokens, say. Each takes up to 200 bytes of memory."""
LARGEST_JSON = 256 << 20
"""Bytes of one JSON document, which is read at once; JSON lines are read a line at a time."""
MOST_BLANK = 1_000_000
"""Blank lines of a file."""


class Row(NamedTuple):
    """One row and its place."""

    values: Mapping[str, Any]
    file: str
    unit: str
    """Unit of `number`, from 1: ``line`` if a row is a line, else ``row``."""
    number: int

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{self.file} {self.unit} {self.number}"


def read_file(path: Path) -> Iterator[Row]:
    """The rows of one file, read by its extension. Raises `UserError` with the line of an error."""
    check_file(path)
    with guard(f"{path} cannot be read"):
        yield from READERS[path.suffix.lower()](path)


def as_row(values: Any, file: str, unit: str, number: int) -> Row:
    """A row of JSON values. Raises `UserError` for an invalid row or value."""
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
    """Number and text of each line, including its end; a byte order mark is dropped."""
    with path.open("rb") as file:
        for number, raw in enumerate(iter(lambda: file.readline(LONGEST_ROW + 1), b""), 1):
            if len(raw) > LONGEST_ROW:
                raise UserError(f"{path} line {number}: the line has more than {LONGEST_ROW:,} bytes, which no row has")
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                byte = f"byte 0x{raw[error.start]:02x} at column {error.start + 1}"
                raise UserError(f"{path} line {number}: {byte} is not UTF-8; save the file as UTF-8") from None


def _json_lines(path: Path) -> Iterator[Row]:
    blank = 0
    for number, text in _lines(path):
        if not text.strip():
            blank += 1
            _check_blank(path, blank)
        else:
            try:
                values = parse_json(text.rstrip(), most=MOST_VALUES)
            except (ValueError, RecursionError) as error:
                hint = "; each line holds one JSON object" if number == 1 else ""
                raise _not_json(error, path, number, hint) from None
            yield _whole_characters(as_row(values, str(path), "line", number), "\\u" in text)


def _check_blank(path: Path, count: int) -> None:
    if count > MOST_BLANK:
        raise UserError(f"{path} has more than {MOST_BLANK:,} blank lines; remove them")


def _json(path: Path) -> Iterator[Row]:
    """An array of objects, an object with the array under ``data``, or JSON lines with the extension of JSON."""
    check_file(path, LARGEST_JSON)
    text = "".join(line for _, line in _lines(path))
    if not text.strip():
        return
    try:
        document = parse_json(text)
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
    return ", ".join(f"'{shown(name, 60)}'" for name in list(values)[:10]) or "nothing"


def _whole_characters(row: Row, escaped: bool) -> Row:
    r"""Refuse half of a character, which JSON can spell (``\ud800``) but no tokenizer or file can represent."""
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
    return _separated(path, separator_of(path))


def separator_of(path: Path) -> str:
    """What separates the cells of a CSV file: a comma, unless the first line has none and a semicolon or tab."""
    _, header = next(_lines(path), (1, ""))
    return next((mark for mark in ",;\t" if mark in header), ",")


def _tsv(path: Path) -> Iterator[Row]:
    return _separated(path, "\t")


def _separated(path: Path, delimiter: str) -> Iterator[Row]:
    """The first line has the column names. An empty cell has no value; all others are text."""
    csv.field_size_limit(LONGEST_ROW)
    reader = csv.reader((text for _, text in _lines(path)), delimiter=delimiter, strict=True)
    header = _next_cells(reader, path) or []
    if len(set(header)) < len(header):
        twice = Counter(header).most_common(1)[0][0]
        raise UserError(f"{path} line 1: two columns are named '{shown(twice)}'")
    blank = 0
    while (number := reader.line_num + 1) and (cells := _next_cells(reader, path)) is not None:
        if cells and len(cells) != len(header):
            raise UserError(
                f"{path} line {number}: {len(cells)} cells, but the first line names {len(header)} columns; "
                'put a cell that holds the separator or a line break in "quotes"'
            )
        if not cells:
            blank += 1
            _check_blank(path, blank)
        else:
            yield Row({name: cell or None for name, cell in zip(header, cells, strict=True)}, str(path), "line", number)


def _next_cells(reader: Any, path: Path) -> list[str] | None:
    try:
        cells: list[str] | None = next(reader, None)
    except csv.Error as error:
        raise UserError(f"{path} line {reader.line_num}: the line cannot be split into cells: {error}") from None
    return cells


def _parquet(path: Path) -> Iterator[Row]:
    with _parquet_errors(path):
        for number, values in enumerate(read_values(path, LONGEST_ROW), 1):
            yield as_row(values, str(path), "row", number)


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        raise UserError(f"{path} cannot be read as Parquet: {shown(str(error).splitlines()[0])}") from None


def known_count(path: Path, enough: int) -> int:
    """Rows of a file as far as they can be counted without reading them; lines are counted to one more than `enough`.

    0 where the rows must be read for it. Blank lines are counted.
    """
    ending = path.suffix.lower()
    if ending == ".parquet":
        with guard(f"{path} cannot be read"), _parquet_errors(path):
            return count_rows(path)
    if ending not in (".jsonl", ".ndjson"):
        return 0
    check_file(path)
    with guard(f"{path} cannot be read"), path.open("rb") as file:
        lines = takewhile(lambda line: 0 < len(line) <= LONGEST_ROW, iter(lambda: file.readline(LONGEST_ROW + 1), b""))
        return sum(1 for _ in islice(lines, enough + 1))


READERS: Mapping[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
}
"""Reader of a file, by extension."""
