"""JSON lines: ``metrics.jsonl`` and ``samples.jsonl``, for programs that read neither Parquet nor the run's record.

Source: the format, https://jsonlines.org.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.trackers import Sample, Session, TrackedRun, Tracker, new_folder, own_folder


@frozen
class Jsonl(Tracker):
    """Two files of JSON lines, and the recipe."""

    longest_text: ClassVar[int | None] = None
    out: str | None = None
    """Folder that gets ``RUN/jsonl``; None writes to ``trackers/jsonl`` in the run's folder."""
    every: PositiveInt = 1
    """Steps between the steps whose rollouts are written."""
    samples: NonNegativeInt | None = None
    """Samples of a step or an evaluation at most; None for all."""

    def open(self, run: TrackedRun) -> Session:
        """Append to the files."""
        folder = new_folder(own_folder(self.out, run, "jsonl"), run)
        (folder / "recipe.json").write_text(json.dumps(run.recipe, indent=2) + "\n", encoding="utf-8")
        return Lines(folder)


class Lines(Session):
    """The files of a run."""

    def __init__(self, folder: Path) -> None:
        """`folder` is there."""
        self._folder = folder
        self.reference = {"folder": str(folder)}

    def _append(self, name: str, *entries: Mapping[str, Any]) -> None:
        text = "".join(json.dumps(entry, allow_nan=False) + "\n" for entry in entries)
        with (self._folder / name).open("a", encoding="utf-8") as file:
            file.write(text)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """A line of ``metrics.jsonl``."""
        self._append("metrics.jsonl", {"step": step, **values})

    def table(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """Lines of ``samples.jsonl``."""
        self._append("samples.jsonl", *({"step": step, "split": split, **asdict(sample)} for sample in samples))

    def close(self, summary: Mapping[str, float] | None) -> None:
        """``summary.json``."""
        if summary is not None:
            (self._folder / "summary.json").write_text(json.dumps(dict(summary), indent=2) + "\n", encoding="utf-8")
