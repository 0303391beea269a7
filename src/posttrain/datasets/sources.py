"""Sources of rows: one file, a folder of files, a saved Hugging Face data set, or one of the hub by name."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from posttrain.component import nearest
from posttrain.components.tasks import Tasks
from posttrain.datasets.extras import extra
from posttrain.datasets.python_files import functions_of, python_files
from posttrain.datasets.rows import READERS, Row, as_row, known_count, read_file, separator_of
from posttrain.errors import UserError
from posttrain.errors.foreign import file_in

_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_SPLITS = {"training": "train", "valid": "validation", "val": "validation", "dev": "validation"}
_SPLIT_IN_NAME = re.compile(r"(?:^|[-_.])(train|training|test|validation|valid|val|dev)(?=$|[-_.\d])")
_SEPARATORS = {";": "semicolons", "\t": "tabs"}
_NOT_ROWS = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json"}


@dataclass(frozen=True, kw_only=True)
class Source:
    """Rows that can be read once, and a description of them."""

    name: str
    """As the user wrote it."""
    form: str
    """``JSONL``, ``2 files, split train of test, train``, ..."""
    rows: Iterator[Row]
    count: Callable[[int], int] = lambda enough: 0
    """Rows that are known to be there without reading them, where there are more than `enough`; 0 if unknown."""


def open_source(name: str, subset: str | None, split: str | None) -> Source:
    """Find the source of a name. Raises `UserError` with the nearest names if there is none."""
    try:
        return _find(Path(name).expanduser(), name, subset, split)
    except (OSError, RuntimeError) as error:  # no permission, a name too long, a missing home folder
        raise UserError(f"{name} cannot be opened: {error}") from None


def files_of(name: str) -> list[Path]:
    """The local files of a source; none for a data set of the hub."""
    path = Path(name).expanduser()
    if not path.is_dir():
        return [path] if path.is_file() else []
    if _is_saved(path):
        return sorted(p for p in path.rglob("*") if p.suffix in (".arrow", ".json") and p.is_file())
    return _data_files(path) or python_files(path)


def _is_saved(path: Path) -> bool:
    """Whether a folder was written by `datasets`."""
    return (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()


def _data_files(path: Path) -> list[Path]:
    """The files of a folder that hold rows. Raises `UserError` for one that leads out of it or is no regular file."""
    found = sorted(
        file
        for file in (*path.glob("*"), *path.glob("*/*"))
        if file.suffix.lower() in READERS and not file.is_dir() and file.name not in _NOT_ROWS and file.name[0] != "."
    )
    return [file_in(path, str(file.relative_to(path))) for file in found]


def _find(path: Path, name: str, subset: str | None, split: str | None) -> Source:
    if subset is not None and path.exists():
        raise UserError(
            f"{name} is on this machine, and only data sets of the Hugging Face hub have subsets; "
            f"leave 'subset' out (got '{subset}')"
        )
    if path.is_file():
        return _file(path, name, split)
    if path.is_dir():
        return _folder(path, name, split)
    if _HUB_NAME.fullmatch(name) and path.suffix.lower() not in READERS and not path.parent.is_dir():
        return _hub(name, subset, split)
    raise UserError(_nothing_there(path, name))


def _file(path: Path, name: str, split: str | None) -> Source:
    ending = path.suffix.lower()
    if ending not in READERS:
        raise UserError(f"{name} ends in '{ending}', which is not read; allowed: {', '.join(READERS)}")
    if split is not None:
        raise UserError(f"{name} is one file, which has no splits; leave 'split' out (got '{split}')")
    separator = separator_of(path) if ending == ".csv" else ","
    form = ending[1:].upper() + ("" if separator == "," else f", separated by {_SEPARATORS[separator]}")
    return Source(name=name, form=form, rows=read_file(path), count=lambda enough: known_count(path, enough))


def _folder(path: Path, name: str, split: str | None) -> Source:
    """A folder written by `datasets`, or one of data files, whose names may contain the split."""
    if _is_saved(path):
        datasets = extra("datasets", "datasets")
        return of_dataset(_call(name, datasets.load_from_disk, str(path)), name, split)
    found = _data_files(path)
    if not found and (code := python_files(path)):
        functions = (row for file in code for row in functions_of(file, path))
        return Source(name=name, form=f"functions of {_count(code, 'Python file')}", rows=functions)
    if not found:
        raise UserError(f"the folder {name} holds no file that can be read; allowed: {', '.join(READERS)}, or Python")
    splits = sorted({_split_of(file) for file in found})
    if split is not None or not {"train", "test", "validation"}.isdisjoint(splits):
        wanted = _choose(splits, split, name)
        found = [file for file in found if _split_of(file) == wanted]
        form = f"{_count(found, 'file')}, {_of(wanted, splits)}"
    else:
        form = _count(found, "file")
    rows = (row for file in found for row in read_file(file))
    return Source(name=name, form=form, rows=rows, count=lambda enough: max(known_count(f, enough) for f in found))


def _hub(name: str, subset: str | None, split: str | None) -> Source:
    datasets = extra("datasets", "datasets")
    return of_dataset(_call(name, datasets.load_dataset, name, subset), name, split)


def _call(name: str, load: Any, *arguments: Any) -> Any:
    """Call the library, and convert its failures, which have no common type, to a `UserError`."""
    try:
        return load(*arguments)
    except Exception as error:
        reason = str(error).strip() or type(error).__name__
        raise UserError(
            f"the data set '{name}' could not be loaded: {reason}\n"
            f"(there is no file or folder of that name in {Path.cwd()})"
        ) from error


def of_dataset(loaded: Any, name: str, split: str | None) -> Source:
    """The rows of a loaded data set, or of one split of a dictionary of them."""
    if not hasattr(loaded, "keys"):
        if split is not None:
            raise UserError(f"{name} holds one data set without splits; leave 'split' out (got '{split}')")
        return Source(name=name, form="data set", rows=_dataset_rows(loaded, name))
    splits = sorted(loaded.keys())
    wanted = _choose(splits, split, name)
    return Source(
        name=name, form=f"data set, {_of(wanted, splits)}", rows=_dataset_rows(loaded[wanted], f"{name} {wanted}")
    )


def _dataset_rows(rows: Any, name: str) -> Iterator[Row]:
    for column, feature in dict(getattr(rows, "features", None) or {}).items():
        encoded = _encoded(feature)
        rows = rows if encoded is None else rows.cast_column(column, encoded)
    for number, values in enumerate(rows, 1):
        yield as_row(values, name, "row", number)


def _encoded(feature: Any) -> Any:
    """The type of a column of images, or of lists of them, that returns the encoded files; None for other columns."""
    if type(feature).__name__ == "Image":
        return type(feature)(decode=False)
    inner = getattr(feature, "feature", None)
    return None if inner is None or _encoded(inner) is None else type(feature)(_encoded(inner))


def _split_of(file: Path) -> str:
    """The split that a file belongs to: a usual word in its name, or else in its folder's, or else its whole name."""
    found = _SPLIT_IN_NAME.search(file.stem.lower()) or _SPLIT_IN_NAME.fullmatch(file.parent.name.lower())
    return _SPLITS.get(found[1], found[1]) if found else file.stem


def _choose(splits: Sequence[str], split: str | None, name: str) -> str:
    """The requested split, or the only one, or the one to train on."""
    if split is not None:
        usual = _SPLITS.get(split, split)
        if split not in splits and usual not in splits:
            raise UserError(f"{name} has no split '{split}'; {nearest(split, splits)}")
        return split if split in splits else usual
    if len(splits) > 1 and "train" not in splits:
        raise UserError(f"{name} has several splits and none is 'train'; name one of {', '.join(splits)} as 'split'")
    return "train" if "train" in splits else splits[0]


def _of(wanted: str, splits: Sequence[str]) -> str:
    return f"split {wanted}" + (f" (there are: {', '.join(splits)})" if len(splits) > 1 else "")


def _count(things: Sequence[Any], noun: str) -> str:
    return f"{len(things)} {noun}{'s' * (len(things) != 1)}"


def _nothing_there(path: Path, name: str) -> str:
    """The message for a missing source: where it was searched, and the nearest names."""
    folder = path.parent
    if not folder.is_dir():
        return f"no file '{name}': there is no folder {folder.absolute()}"
    there = sorted(f.name for f in folder.iterdir() if f.name[0] != "." and (f.is_dir() or f.suffix.lower() in READERS))
    close = get_close_matches(path.name, [*there, *Tasks.kinds()], n=1, cutoff=0.5)
    known = f"did you mean {close[0]}?" if close else f"there is: {', '.join(there[:10]) or 'no data file'}"
    advice = "" if path.suffix else "; a data set of the Hugging Face hub is named as owner/name"
    return f"no file, folder or kind of tasks named '{name}' (looked in {folder.absolute()}); {known}{advice}"
