"""Reads files that others made: every failure to read one is a `UserError` with the file and the place.

Model folders, data sets and messages of libraries about them are foreign. Four rules hold for all of it:

- a file is a regular file of the folder that was named, and at most so large (`file_in`, `read_text`);
- JSON is read by one reader, with a bound of its depth and without keys that are there twice (`parse_json`);
- whatever a parser raises, `PanicException` and `RecursionError` among it, is a `UserError` (`guard`);
- a text that reaches a terminal is one line without control characters (`shown`, `printable`).
"""

import json
import re
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

from posttrain.errors import PosttrainError, UserError

DEEPEST = 100
"""Levels of lists and objects in a JSON document. Those of models and data have less than 20."""
MOST_VALUES = 5_000_000
"""Brackets and commas of a JSON document: each value takes up to 200 bytes of memory. Vocabularies have two million."""
SMALL_FILE = 64 << 20
"""Bytes of a file that is read at once, where no other bound is given: a hundred times what is usual."""
_WIDTH = 300
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NO_BRACKETS = re.compile(r"[^\[\]{}]+")
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
"""What moves the cursor, sets colours, ends a line or turns the direction of writing, and halves of characters."""


def shown(text: object, width: int = _WIDTH) -> str:
    """A foreign text for a message: one line of at most `width` characters, control characters as escapes."""
    line = str(text)
    line = _CONTROL.sub(_escape, line[: width + 1].replace("\n", " "))
    return line if len(line) <= width else line[: width - 3] + "..."


def printable(text: str) -> str:
    """A text for a terminal: control characters as escapes, lines and tabs as they are."""
    return _CONTROL.sub(lambda found: found[0] if found[0] in "\n\t" else _escape(found), text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


@contextmanager
def guard(what: str) -> Iterator[None]:
    """Turn whatever a foreign parser raises into a `UserError` that begins with `what`: a file and what is wrong."""
    try:
        yield
    except (PosttrainError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except RecursionError:
        raise UserError(f"{what}: it is nested too deeply") from None
    except MemoryError:
        raise UserError(f"{what}: reading it takes more memory than there is") from None
    except BaseException as error:  # PanicException of Rust's libraries is no Exception
        raise UserError(f"{what}: {shown(_reason(error)) or type(error).__name__}") from None


def _reason(error: BaseException) -> str:
    """The message of a library, as one sentence."""
    from pydantic import ValidationError  # takes a sixth of a second, and `posttrain --help` needs none of it

    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"{place}: {first['msg']}" if place else str(first["msg"])
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def parse_json(text: str, *, constants: bool = False, deepest: int = DEEPEST, most: int = MOST_VALUES) -> Any:
    """The value of a JSON text. Raises `ValueError` for anything else, also where it is too deep or a key is twice.

    `constants` takes NaN and Infinity, which configs of models hold; `most` bounds the number of values.
    """
    if sum(map(text.count, "[{,")) > most:
        raise ValueError(f"more than about {most:,} values")
    if nesting(text, deepest) > deepest:
        raise ValueError(f"nested too deeply: more than {deepest} levels")
    return json.loads(text, object_pairs_hook=_unique, parse_constant=None if constants else _refuse_constant)


def nesting(text: str, enough: int) -> int:
    """Levels of lists and objects in a JSON text; 0 where there cannot be more than `enough`."""
    if text.count("[") + text.count("{") <= enough:
        return 0
    brackets = _NO_BRACKETS.sub("", _STRING.sub("", text))
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object, unless a key is there twice."""
    values = dict(pairs)
    if len(values) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {shown(repr(twice), 80)} is there twice")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value; write null or a text")


def read_json(path: Path, most: int = SMALL_FILE) -> dict[str, Any]:
    """A JSON object from a file; empty when there is no file. Raises `UserError` for anything else."""
    if not path.exists() and not path.is_symlink():
        return {}
    text = read_text(path, most)
    try:
        value = parse_json(text, constants=True)
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"'{path}' is not readable JSON: {shown(error) or type(error).__name__}") from None
    if not isinstance(value, dict):
        raise UserError(f"'{path}' holds a {type(value).__name__}, not a JSON object")
    return value


def read_text(path: Path, most: int = SMALL_FILE) -> str:
    """The text of a file. Raises `UserError` where it is no regular file, is too large, or is not UTF-8."""
    try:
        return read_bytes(path, most).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"'{path}' is not UTF-8 (byte 0x{error.object[error.start]:02x} at {error.start}); it is damaged or no text"
        ) from None


def read_bytes(path: Path, most: int = SMALL_FILE) -> bytes:
    """The bytes of a file. Raises `UserError` where it is no regular file or is too large."""
    check_file(path, most)
    with guard(f"'{path}' cannot be read"), path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise UserError(_too_large(path, len(content), most))
    return content


def check_file(path: Path, most: int | None = None) -> int:
    """Size in bytes of a regular file. Raises `UserError` for anything else, and for one that is larger than `most`."""
    with guard(f"'{shown(path)}' cannot be read"):
        found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise UserError(f"'{shown(path)}' is {_kind(found.st_mode)}, not a regular file, so it is not read")
    if most is not None and found.st_size > most:
        raise UserError(_too_large(path, found.st_size, most))
    return found.st_size


def file_in(folder: Path, name: str) -> Path:
    """A file of a foreign folder by the name that something foreign gives it.

    Raises `UserError` for a name or a link that leads out of the folder, and for what is no regular file. A folder of
    the Hugging Face cache (``.../snapshots/REVISION``) links to the ``blobs`` of its own repository, which is allowed.
    """
    path = folder / name
    with guard(f"'{shown(path)}' cannot be read"):
        if Path(name).name == name and stat.S_ISREG(path.lstat().st_mode):
            return path  # no link, in the folder itself
        real, home = path.resolve(strict=True), folder.resolve(strict=True)
    blobs = home.parent.parent / "blobs" if home.parent.name == "snapshots" else None
    if not real.is_relative_to(home) and (blobs is None or not real.is_relative_to(blobs.resolve())):
        raise UserError(
            f"'{shown(path)}' leads out of its folder, to '{shown(real)}': what is in a folder may not name files "
            f"elsewhere, since they would be read and copied. If you want that file, put it there: cp -L"
        )
    check_file(real)
    return path


def _too_large(path: Path, size: int, most: int) -> str:
    return (
        f"'{shown(path)}' has {size:,} bytes, and at most {most:,} are read of such a file: it is damaged, or not what "
        "its name states"
    )


def _kind(mode: int) -> str:
    """What a path is that is no regular file."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")
