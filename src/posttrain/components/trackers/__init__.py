"""Trackers: where the numbers and samples of a run go besides its own record, such as TensorBoard or MLflow.

Contract: a tracker gets what has been recorded, in order, in a thread of its own; it cannot change the run, and what it
raises ends the tracking, not the run. After a resume it goes on with the same run of the library. Nothing leaves the
machine unless a setting names a server. Names of numbers are those of the record, below ``train/`` (metrics of a step),
``time/`` (seconds, speed, memory) and ``eval/`` (held-out evaluations); steps count over all stages.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from posttrain.component import Component
from posttrain.errors import UserError

LONGEST_TEXT = 4_000
"""Characters of a prompt or a completion in a table of samples."""


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """The run that a tracker is opened for."""

    name: str
    id: str
    """Six hexadecimal digits that distinguish it from others of its name, the same after a resume."""
    folder: Path
    recipe: Mapping[str, Any]
    """The resolved recipe."""
    reference: Mapping[str, str]
    """`Session.reference` of the process before this one; empty for a new run."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One rollout or one held-out answer. What is unknown is None."""

    task: str
    """Key of the task."""
    prompt: str
    completion: str
    answer: str | None = None
    """The reference answer."""
    reward: float | None = None
    advantage: float | None = None
    """Mean over the trained tokens."""
    status: str | None = None
    """``ok``, ``wrong`` or ``error``."""
    extracted: str | None = None
    """The answer that was read from the completion."""
    explanation: str | None = None
    group: int = 0
    sample: int = 0
    """Number among those of the same prompt; of held-out answers 0 is the greedy one."""
    stop_reason: str | None = None
    dropped: str | None = None
    """Why it was not learned from."""


class Session:
    """A run of a tracker's library, open for writing. Methods raise whatever the library raises."""

    reference: Mapping[str, str] = {}
    """What identifies the run in the library, kept for a resume."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Write numbers of a step."""
        raise NotImplementedError

    def table(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """Write a table of samples; `split` is ``train`` or ``eval``."""
        raise NotImplementedError

    def evaluation(self, step: int, name: str, values: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """Write a held-out evaluation: its numbers and some of its answers."""
        self.log(step, values)
        if samples:
            self.table(step, "eval", samples)

    def rewind(self, step: int) -> None:
        """Take back everything after a step; called only where `Tracker.rewinds`."""
        raise NotImplementedError

    def close(self, summary: Mapping[str, float] | None) -> None:
        """End it with the numbers of the run's summary; None for a run that was stopped and may be resumed."""


class Tracker(Component):
    """A place for numbers and samples."""

    package: ClassVar[str] = ""
    """The module that it needs, which the extra of the tracker's name installs; empty for none."""
    rewinds: ClassVar[bool] = False
    """Whether steps can be taken back. Otherwise those that were sent are not sent again."""
    longest_text: ClassVar[int | None] = LONGEST_TEXT
    """Characters of a text in `Sample`; None for all."""
    out: str | None
    """Where it writes."""
    samples: int | None
    """Samples in a table at most; None for all."""

    def open(self, run: TrackedRun) -> Session:
        """Begin, or with a reference go on. Raises `UserError` for a place where another run is."""
        raise NotImplementedError

    def takes_rollouts(self, stage_step: int) -> bool:
        """Whether it gets the rollouts of a step of a stage: the first one, and each multiple of its field `every`."""
        every: int | None = getattr(self, "every", None)
        return every is not None and (stage_step == 1 or stage_step % every == 0)

    def check(self) -> None:
        """Raise `UserError` if its package is not installed."""
        if self.package and importlib.util.find_spec(self.package) is None:
            raise UserError(
                f"the tracker {self.kind} needs the package '{self.package}', which is not installed: "
                f"pip install 'posttrain[{self.kind}]'; or leave it out of trackers"
            )


def new_folder(path: Path, run: TrackedRun) -> Path:
    """A folder for a tracker's files, made if missing. Raises `UserError` if a new run finds files in it."""
    if not run.reference and path.is_dir() and any(path.iterdir()):
        raise UserError(f"{path} is not empty, and another run may be in it; name another folder")
    path.mkdir(parents=True, exist_ok=True)
    return path


def own_folder(out: str | None, run: TrackedRun, kind: str) -> Path:
    """Where a tracker writes files of a run: ``OUT/RUN/KIND``, or ``trackers/KIND`` in the run's own folder."""
    return Path(out).expanduser() / run.name / kind if out is not None else run.folder / "trackers" / kind


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    """The leaves of a tree by dotted path; empty lists and mappings are left out."""
    if not isinstance(tree, Mapping | list | tuple):
        return {path: tree}
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    below = [flat(item, f"{path}.{key}" if path else f"{key}") for key, item in items]
    return {name: leaf for leaves in below for name, leaf in leaves.items()}
