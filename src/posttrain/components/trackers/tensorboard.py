"""TensorBoard's event files: scalars, samples as text, the recipe as text and as hyperparameters.

    tensorboard --logdir runs

Source: TensorBoard's event files and plugins, https://www.tensorflow.org/tensorboard. After a resume a new event file
purges the steps that are done again, so that none is there twice.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.trackers import Sample, Session, TrackedRun, Tracker, flat, new_folder, own_folder
from posttrain.components.trackers._rows import markdown
from posttrain.datasets.extras import extra


@frozen
class TensorBoard(Tracker):
    """Event files in the run's own folder, or in another one."""

    package: ClassVar[str] = "tensorboard"
    rewinds: ClassVar[bool] = True
    out: str | None = None
    """Folder that gets ``RUN/tensorboard``; None writes to ``trackers/tensorboard`` in the run's folder."""
    every: PositiveInt = 10
    """Steps between tables of rollouts."""
    samples: NonNegativeInt = 8
    """Samples in a table at most."""

    def open(self, run: TrackedRun) -> Session:
        """A new event file."""
        return EventFiles(new_folder(own_folder(self.out, run, "tensorboard"), run), run)


class EventFiles(Session):
    """A folder of event files, flushed after every step."""

    def __init__(self, folder: Path, run: TrackedRun) -> None:
        """Opens a new file in the folder."""
        self._library = extra("torch.utils.tensorboard", "tensorboard")
        self._folder, self._recipe = folder, run.recipe
        self._writer = self._new_writer()
        self.reference = {"folder": str(folder)}
        if not run.reference:
            text = json.dumps(run.recipe, indent=2, ensure_ascii=False)
            self._writer.add_text("recipe", f"```json\n{text}\n```", 0)

    def _new_writer(self, purge_step: int | None = None) -> Any:
        return self._library.SummaryWriter(str(self._folder), purge_step=purge_step)

    def rewind(self, step: int) -> None:
        """Begin another file, whose first event makes readers drop what the files before it have after `step`."""
        self._writer.close()
        self._writer = self._new_writer(step + 1)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Scalars."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def table(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """A table in Markdown."""
        self._writer.add_text(f"{split}/samples", markdown(samples), step)
        self._writer.flush()

    def close(self, summary: Mapping[str, float] | None) -> None:
        """Hyperparameters and the summary, for TensorBoard's comparison of runs."""
        if summary:
            hparams = extra("torch.utils.tensorboard.summary", "tensorboard").hparams
            settings = {name: v for name, v in flat(self._recipe).items() if isinstance(v, bool | int | float | str)}
            named = {f"summary/{name}": value for name, value in summary.items()}
            for part in hparams(settings, named):
                self._writer.file_writer.add_summary(part)
            for name, value in named.items():
                self._writer.add_scalar(name, value, 0)
        self._writer.close()
