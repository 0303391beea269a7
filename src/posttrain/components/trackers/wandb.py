"""Weights & Biases: offline by default, in files that ``wandb sync`` uploads later.

    wandb sync runs/wandb/offline-run-*

Source: the library's own interface, https://docs.wandb.ai. Each table has a key of its own, since a key that comes
again shows only its last table (https://github.com/huggingface/trl/issues/2045). A run that is resumed offline is
another folder with the same id; W&B joins them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.trackers import Sample, Session, TrackedRun, Tracker
from posttrain.components.trackers._rows import COLUMNS, rows_of
from posttrain.datasets.extras import extra


@frozen
class WandB(Tracker):
    """A run of a project of Weights & Biases."""

    package: ClassVar[str] = "wandb"
    project: str = "posttrain"
    """Name of the project."""
    mode: Literal["offline", "online"] = "offline"
    """``online`` sends metrics, prompts and completions to the server that ``wandb login`` named."""
    out: str | None = None
    """Folder that gets the folder ``wandb``; None takes the folder of the runs."""
    every: PositiveInt = 10
    """Steps between tables of rollouts."""
    samples: NonNegativeInt = 16
    """Samples in a table at most."""

    def open(self, run: TrackedRun) -> Session:
        """Begin a run, or go on with one."""
        wandb = extra("wandb", "wandb")
        folder = Path(self.out).expanduser() if self.out is not None else run.folder.parent
        folder.mkdir(parents=True, exist_ok=True)
        # The library would capture the terminal, the code and the state of the machine; the record has those.
        quiet = wandb.Settings(console="off", silent=True, disable_git=True, save_code=False, x_disable_stats=True)
        own = wandb.init(
            project=self.project, id=f"{run.name}-{run.id}", name=run.name, dir=str(folder), mode=self.mode,
            resume="allow", config=dict(run.recipe), reinit="create_new", settings=quiet,
        )  # fmt: skip
        return WandBRun(wandb, own)


class WandBRun(Session):
    """A run of the library."""

    def __init__(self, wandb: Any, run: Any) -> None:
        """`wandb` is the library."""
        self._wandb, self._run = wandb, run
        self.reference = {"id": run.id}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Numbers of a step."""
        self._run.log(dict(values), step=step)

    def table(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """A table."""
        table = self._wandb.Table(columns=list(COLUMNS), data=rows_of(samples))
        self._run.log({f"{split}_samples/{step:06d}": table}, step=step)

    def close(self, summary: Mapping[str, float] | None) -> None:
        """The summary, and the end."""
        for name, value in (summary or {}).items():
            self._run.summary[name] = value
        self._run.finish(exit_code=0 if summary is not None else 1)
