"""Trackio: a local SQLite file for each project.

    trackio show --project posttrain

Source: the library's own interface, https://github.com/gradio-app/trackio. Its folder is fixed when it is imported, so
that a process writes to one folder only.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.trackers import Sample, Session, TrackedRun, Tracker
from posttrain.components.trackers._rows import COLUMNS, rows_of
from posttrain.datasets.extras import extra
from posttrain.errors import UserError


@frozen
class Trackio(Tracker):
    """A run of a project of Trackio."""

    package: ClassVar[str] = "trackio"
    project: str = "posttrain"
    """Name of the project."""
    out: str | None = None
    """Folder of the projects; None takes the library's own, where ``trackio show`` finds them."""
    every: PositiveInt = 10
    """Steps between tables of rollouts."""
    samples: NonNegativeInt = 16
    """Samples in a table at most."""

    def open(self, run: TrackedRun) -> Session:
        """Begin a run, or go on with one."""
        if self.out is not None:
            os.environ["TRACKIO_DIR"] = str(Path(self.out).expanduser().absolute())
        trackio = extra("trackio", "trackio")
        used = Path(extra("trackio.utils", "trackio").TRACKIO_DIR)
        if self.out is not None and used != Path(os.environ["TRACKIO_DIR"]):
            raise UserError(f"this process writes to the Trackio folder {used} already, and cannot write to {self.out}")
        own = trackio.init(
            project=self.project, name=f"{run.name}-{run.id}", config=dict(run.recipe), embed=False,
            resume="allow" if run.reference else "never", auto_log_cpu=False, auto_log_gpu=False,
        )  # fmt: skip
        return TrackioRun(trackio, own)


class TrackioRun(Session):
    """A run of the library."""

    def __init__(self, trackio: Any, run: Any) -> None:
        """`trackio` is the library."""
        self._trackio, self._run = trackio, run
        self.reference = {"name": str(run.name)}
        self._step: int | None = None

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of a step."""
        self._step = step
        self._run.log(dict(values), step=step)

    def table(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """A table."""
        table = self._trackio.Table(columns=list(COLUMNS), data=rows_of(samples))
        self._run.log({f"{split}/samples": table}, step=step)

    def close(self, summary: Mapping[str, float] | None) -> None:
        """The summary as metrics of the last step, and the end."""
        if summary:
            self._run.log({f"summary/{name}": value for name, value in summary.items()}, step=self._step)
        self._run.finish()
