"""CSV: ``metrics.csv`` with one row per step, and ``samples.csv``, for spreadsheets.

Source: RFC 4180 in UTF-8, https://www.rfc-editor.org/info/rfc4180. A text that a spreadsheet would run as a formula
gets an apostrophe in front of it.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.trackers import Sample, Session, TrackedRun, Tracker, new_folder, own_folder


@frozen
class Csv(Tracker):
    """Two tables as text."""

    longest_text: ClassVar[int | None] = None
    out: str | None = None
    """Folder that gets ``RUN/csv``; None writes to ``trackers/csv`` in the run's folder."""
    every: PositiveInt = 1
    """Steps between the steps whose rollouts are written."""
    samples: NonNegativeInt | None = None
    """Samples of a step or an evaluation at most; None for all."""

    def open(self, run: TrackedRun) -> Session:
        """Append to the files."""
        return Tables(new_folder(own_folder(self.out, run, "csv"), run))


class Tables(Session):
    """The files of a run."""

    def __init__(self, folder: Path) -> None:
        """`folder` is there."""
        self._folder = folder
        self.reference = {"folder": str(folder)}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """A row of ``metrics.csv``, which gets another column for a number that is new."""
        _append(self._folder / "metrics.csv", [{"step": step, **values}])

    def table(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """Rows of ``samples.csv``."""
        rows = [{name: _text(value) for name, value in asdict(sample).items()} for sample in samples]
        _append(self._folder / "samples.csv", [{"step": step, "split": split, **row} for row in rows])


def _text(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value


def _append(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows; where they have new columns, the file is written again with those of all its rows."""
    with path.open("a+", encoding="utf-8", newline="") as file:
        file.seek(0)
        columns = next(csv.reader(file), [])
        together = list(dict.fromkeys([*columns, *(name for row in rows for name in row)]))
        if together == columns:
            _write(file, columns, rows)
            return
        file.seek(0)
        earlier = list(csv.DictReader(file))
        file.truncate(0)
        csv.writer(file).writerow(together)
        _write(file, together, [*earlier, *rows])


def _write(file: Any, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    csv.DictWriter(file, columns).writerows(rows)
