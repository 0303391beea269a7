"""The record of a run: a folder of files that any program can read.

    recipe.yaml         the resolved recipe
    environment.json    versions, machine, code, command line
    metrics.jsonl       one line per step: what was measured; the same in every run of the same recipe
    events.jsonl        alarms, discards, notes; likewise
    evals.jsonl         one line per evaluation; likewise
    stream.jsonl        with schedule=streaming: what each step was sampled from and learned from; likewise
    memory.jsonl        where a reward keeps much: what each checkpoint added to it; likewise
    environments.jsonl  answers of environments that are servers, as they came; never cut
    timing.jsonl        one line per step: seconds, tokens per second, memory; differs from run to run
    history.jsonl       starts, resumes and repairs of the process, with the time; never cut
    rollouts/           step_000123.parquet: one row per trajectory
    evals/              step_000123.parquet: one row per answer
    checkpoints/        what is needed to go on
    summary.json, report.html

Steps count from 1 over all stages; step 0 is before the first. A checkpoint keeps `RunStore.position`; a resumed run
calls `RunStore.rewind` with it, and from there on writes what the run would have written had it never been stopped.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from posttrain.errors import UserError
from posttrain.errors.foreign import parse_json
from posttrain.runs.environment import RECIPE, describe_environment
from posttrain.runs.episodes import EpisodeJournal
from posttrain.runs.failure import cannot_write, is_about_storage
from posttrain.runs.files import check_own_files, make_folder, restore_folders, sync, write_file
from posttrain.runs.folders import make_run_folder, name_missing, why_no_run
from posttrain.runs.journal import Journal, plain, read_lines, sound_lines
from posttrain.runs.lock import RunLock
from posttrain.runs.reading import DOCUMENT, read_own, read_yaml, step_files
from posttrain.runs.tables import RolloutTable, clean_text, read_table, rollout_rows, write_table

__all__ = ["RolloutTable", "RunStore", "rollout_rows"]

REPAIRS = ("bad checkpoint", "rewound", "incomplete record", "changed")
"""Kinds of history entries that are shown when a run is resumed."""
SAMPLED_NLL = "sampled_nll"
"""The metric that runs recorded as ``entropy`` before they recorded the entropy itself."""
GIVEN = " (given)"
"""Ends the name of an evaluation in its rows of demonstrations and pairs, which were measured and not answered."""
_CUT = ("metrics.jsonl", "timing.jsonl", "events.jsonl", "evals.jsonl")
_JOURNALS = (*_CUT, "history.jsonl")
STREAM = "stream.jsonl"
"""The journal of runs whose rollouts go on over changes of the weights; others do not have it."""
MEMORY = "memory.jsonl"
"""The journal of runs whose rewards keep more than `snapshot.INLINE`; others do not have it."""
_OPTIONAL = (STREAM, MEMORY)


class RunStore:
    """A run's folder, opened by the one process that may write to it, or by any process to read it."""

    def __init__(self, folder: Path, lock: RunLock | None) -> None:
        """Use `create` or `open`."""
        self.folder = folder
        self._lock = lock
        there = (*_JOURNALS, *(name for name in _OPTIONAL if (folder / name).is_file()))
        self._journals = {name: Journal(folder / name) for name in there} if lock else {}
        self.episodes = EpisodeJournal(folder)
        self._unsynced: set[Path] = set()
        self.memories: Any = None
        """What `runs.memories` holds of the file of memories."""
        self._last_step = 0

    @classmethod
    def create(
        cls, root: Path, name: str, recipe_tree: Mapping[str, Any], environment: Mapping[str, Any] | None = None
    ) -> Self:
        """Make the folder ``root/name-1``, or the next number that is free, and open it for writing.

        `environment` is added to what is found out about software and machine: threads, device.
        """
        folder = make_run_folder(Path(root), re.sub(r"[^\w.+-]+", "-", name).strip(".-") or "run")
        try:
            for part in ("rollouts", "evals", "checkpoints"):
                make_folder(folder / part)
            found = {**describe_environment(environment), RECIPE: recipe_tree}
            write_file(folder / "environment.json", json.dumps(plain(found), indent=1) + "\n")
            _write_yaml(folder / "recipe.yaml", recipe_tree)  # last: it makes the folder a run
            store = cls(folder, RunLock(folder))
            sync(folder)
        except OSError as error:
            raise cannot_write(error, folder, folder) from error
        store.log_history("started", "the run was started")
        return store

    @classmethod
    def open(cls, folder: Path, *, reading: bool = False) -> Self:
        """Open a run to continue it, or only for reading, which a run in progress allows.

        Raises `UserError` when there is no run there, or another process is writing to it.
        """
        folder = Path(folder)
        if not (folder / "recipe.yaml").is_file():
            raise UserError(why_no_run(folder))
        if reading:
            return cls(folder, None)
        check_own_files(folder)
        try:
            store = cls(folder, RunLock(folder))
        except OSError as error:
            raise cannot_write(error, folder, folder) from error
        store._repair()
        store.log_history("opened", "the run was opened to be continued", environment=describe_environment())
        return store

    def __enter__(self) -> Self:
        """The store itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let another process write to the run."""
        for journal in self._journals.values():
            journal.close()
        self._journals = {}
        self.episodes.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @property
    def name(self) -> str:
        """Name of the run: of its folder."""
        return self.folder.resolve().name

    @property
    def _cut(self) -> tuple[str, ...]:
        """Journals that a resumed run cuts back."""
        return (*_CUT, *(name for name in _OPTIONAL if name in self._journals))

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.folder / "checkpoints"

    # Writing

    def log_metrics(self, step: int, stage: str, stage_step: int, metrics: Mapping[str, float | None]) -> None:
        """Record the metrics of a step, which are a function of the recipe."""
        self._append("metrics.jsonl", {"step": step, "stage": stage, "stage_step": stage_step, **metrics})
        self._last_step = step

    def log_timing(self, step: int, stage: str, stage_step: int, timing: Mapping[str, float | None]) -> None:
        """Record seconds by phase, tokens per second and memory of a step, or of an evaluation after it."""
        self._append("timing.jsonl", {"step": step, "stage": stage, "stage_step": stage_step, **timing})

    def log_stream(self, step: int, stage: str, entry: Mapping[str, Any]) -> None:
        """Record what a step was sampled from and learned from."""
        self._begin(STREAM)
        self._append(STREAM, {"step": step, "stage": stage, **entry})

    def log_memory(self, step: int, change: str) -> int:
        """Record what a checkpoint adds to the memory of the reward, a JSON text; returns the bytes of the journal."""
        self._begin(MEMORY)
        self._append(MEMORY, {"step": step, "change": change})
        return self._journal(MEMORY).size

    def log_event(self, step: int, kind: str, message: str, **details: Any) -> None:
        """Record an event: an alarm, a discard, a note. Events are a function of the recipe."""
        self._append("events.jsonl", {"step": step, "kind": kind, "message": message, **details})

    def log_history(self, kind: str, message: str, **details: Any) -> None:
        """Record an event of the process, with the time. Each is forced to the disk, since the history is never cut."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S%z")
        self._append("history.jsonl", {"time": moment, "kind": kind, "message": message, **details})
        self._sync_journal("history.jsonl")

    def write_rollouts(self, step: int, rows: RolloutTable) -> None:
        """Record the trajectories of a step."""
        self._write_table(rows, _step_path(self.folder / "rollouts", step), step)

    def write_evaluation(
        self,
        step: int,
        name: str,
        rows: RolloutTable | None,
        summary: Mapping[str, Any],
        given: RolloutTable | None = None,
    ) -> None:
        """Record an evaluation after a step: its answers (sample 0 is the greedy one), its numbers, and the rows of the
        `given` texts that were measured.
        """
        for table, called in ((rows, name), (given, name + GIVEN)):
            if table is not None:
                self._write_table(table, _step_path(self.folder / "evals", step), step, evaluation=called)
        self._append("evals.jsonl", {"step": step, "name": name, **summary})

    def write_document(self, name: str, text: str) -> Path:
        """Write a file that can be made again from the record, such as ``report.html``; return its path."""
        path = self.folder / name
        try:
            write_file(path, text)
        except OSError as error:
            raise cannot_write(error, path, self.folder) from error
        return path

    def write_recipe(self, tree: Mapping[str, Any]) -> None:
        """Replace ``recipe.yaml`` by a changed recipe."""
        try:
            _write_yaml(self.folder / "recipe.yaml", tree)
        except OSError as error:
            raise cannot_write(error, self.folder / "recipe.yaml", self.folder) from error

    # Going back

    def position(self) -> dict[str, int]:
        """The end of the record, after forcing it to the disk: bytes of each journal, and the last step."""
        try:
            for journal in self._journals.values():
                journal.sync()
            for path in sorted(self._unsynced):
                sync(path)
            for folder in (self.folder / "rollouts", self.folder / "evals", self.folder):
                sync(folder)
            answers = self.episodes.position()
        except OSError as error:
            raise cannot_write(error, self.folder, self.folder) from error
        self._unsynced.clear()
        sizes = {name: self._journal(name).size for name in self._cut} | answers
        return {"step": self._last_step, "rollouts": self._recorded(self._last_step), **sizes}

    def position_of(self, name: str) -> int:
        """Bytes of a journal; 0 where it has not begun."""
        return self._journals[name].size if name in self._journals else 0

    def rewind(self, position: Mapping[str, int]) -> None:
        """Truncate the record to a position; an empty one is the start. What a power cut damaged after it goes too."""
        step = position.get("step", 0)
        undone = [entry for entry in sound_lines(self.folder / "metrics.jsonl") if entry["step"] > step]
        if undone:
            timing = sound_lines(self.folder / "timing.jsonl")
            seconds = sum(entry.get("seconds_total") or 0.0 for entry in timing if entry["step"] > step)
            message = f"went back to step {step}; steps done again because no checkpoint held them: {len(undone)}"
            self.log_history("rewound", message, step=step, steps_undone=len(undone), seconds_undone=seconds)
        for name in self._cut:
            self._journal(name).cut(position.get(name, 0))
        self.episodes.go_on(position)
        evaluated = {entry["step"] for entry in self.evaluations()}
        self._note_missing(position, evaluated)
        for path in self._tables("rollouts"):
            if _step_of(path) > step:
                path.unlink()
        for path in self._tables("evals"):
            if _step_of(path) not in evaluated:
                path.unlink()
        self._unsynced = {path for path in self._unsynced if path.exists()}
        for name in ("summary.json", "report.html"):
            (self.folder / name).unlink(missing_ok=True)
        self._last_step = step

    # Reading

    def recipe_tree(self) -> dict[str, Any]:
        """The resolved recipe, as a tree."""
        from ruamel.yaml.error import YAMLError

        path = self.folder / "recipe.yaml"
        try:
            tree = read_yaml(path)
        except (YAMLError, ValueError, RecursionError) as error:
            raise UserError(f"{path} is no recipe: {str(error).splitlines()[0]}") from None
        if not isinstance(tree, dict):
            raise UserError(f"{path} is no recipe: it holds {type(tree).__name__}, not fields")
        return tree

    def environment(self) -> dict[str, Any]:
        """Versions, machine, code and command line of the start."""
        return _read_json(self.folder / "environment.json")

    def summary(self) -> dict[str, Any]:
        """Content of ``summary.json``; empty if the run has not ended."""
        return _read_json(self.folder / "summary.json")

    def metrics(self) -> list[dict[str, Any]]:
        """Metrics, one dict per step."""
        return [_named(entry) for entry in read_lines(self.folder / "metrics.jsonl")]

    def timing(self) -> list[dict[str, Any]]:
        """Seconds, speed and memory, one dict per step."""
        return read_lines(self.folder / "timing.jsonl")

    def events(self) -> list[dict[str, Any]]:
        """Alarms, discards and notes."""
        return read_lines(self.folder / "events.jsonl")

    def history(self) -> list[dict[str, Any]]:
        """Starts, resumes and repairs."""
        return read_lines(self.folder / "history.jsonl")

    def stream(self) -> list[dict[str, Any]]:
        """What each step was sampled from and learned from; none of runs that do not stream."""
        return read_lines(self.folder / STREAM)

    def evaluations(self) -> list[dict[str, Any]]:
        """Numbers of each evaluation, in order."""
        return read_lines(self.folder / "evals.jsonl")

    def rollout_steps(self) -> list[int]:
        """Steps whose trajectories are recorded."""
        return [_step_of(path) for path in self._tables("rollouts")]

    def evaluation_steps(self) -> list[int]:
        """Steps after which answers to held-out tasks are recorded."""
        return [_step_of(path) for path in self._tables("evals")]

    def rollouts(self, step: int, columns: Sequence[str] = (), where: str = "true") -> list[dict[str, Any]]:
        """Trajectories of a step: the named columns or all, of the rows that satisfy a condition in SQL."""
        return self._read_table("rollouts", step, columns, where)

    def evaluation_rows(
        self, step: int, name: str | None = None, columns: Sequence[str] = (), where: str = "true"
    ) -> list[dict[str, Any]]:
        """Answers of the evaluations after a step, or of the one with a name."""
        if name is None:
            return self._read_table("evals", step, columns, where)
        return self._read_table("evals", step, columns, f"({where}) AND evaluation = ?", [clean_text(name)])

    def given_rows(self, step: int, name: str, columns: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Held-out demonstrations and pairs that an evaluation after a step measured."""
        return self.evaluation_rows(step, name + GIVEN, columns)

    # Inside

    def _begin(self, name: str) -> None:
        """Open a journal that not every run has."""
        self._journal("metrics.jsonl")  # the run is open
        if name not in self._journals:
            self._journals[name] = Journal(self.folder / name)

    def _append(self, name: str, entry: Mapping[str, Any]) -> None:
        self._journal(name).append(entry)

    def _sync_journal(self, name: str) -> None:
        try:
            self._journal(name).sync()
        except OSError as error:
            raise cannot_write(error, self.folder / name, self.folder) from error

    def _journal(self, name: str) -> Journal:
        assert name in self._journals, f"the run {self.folder} is closed, or open for reading only"
        return self._journals[name]

    def _recorded(self, step: int) -> int:
        """Number of steps until `step` whose trajectories are recorded."""
        return sum(_step_of(path) <= step for path in self._tables("rollouts"))

    def _note_missing(self, position: Mapping[str, int], evaluated: set[int]) -> None:
        """Record in the history which tables before a checkpoint are gone; the run does not need them."""
        lost = evaluated - set(self.evaluation_steps())
        kept = set(self.rollout_steps())
        without = [entry["step"] for entry in self.metrics() if entry["step"] not in kept]
        number = position.get("rollouts", 0) - self._recorded(position.get("step", 0))
        if gone := name_missing(sorted(lost), without, number):
            self.log_history("incomplete record", gone)

    def _tables(self, kind: str) -> list[Path]:
        return list(step_files(self.folder / kind).values())

    def _write_table(self, rows: RolloutTable, path: Path, step: int, evaluation: str | None = None) -> None:
        import duckdb

        self._journal("metrics.jsonl")
        try:
            write_table(rows, path, step=step, evaluation=evaluation)
            self._keep_pictures(rows.pictures)
        except (OSError, duckdb.Error) as error:
            if not is_about_storage(error, path.parent):
                raise
            raise cannot_write(error, path, self.folder) from error
        self._unsynced.add(path)

    def _keep_pictures(self, pictures: Mapping[str, bytes]) -> None:
        """Write the pictures that are not there yet; names are digests, so that none is written twice."""
        for name, data in pictures.items():
            path = self.folder / name
            if not path.is_file() or path.stat().st_size != len(data):
                if not path.parent.is_dir():
                    make_folder(path.parent)
                write_file(path, data)

    def _read_table(
        self, kind: str, step: int, columns: Sequence[str], where: str, parameters: Sequence[object] = ()
    ) -> list[dict[str, Any]]:
        path = _step_path(self.folder / kind, step)
        if not path.is_file():
            steps = ", ".join(str(_step_of(p)) for p in self._tables(kind)) or "none"
            raise UserError(f"{self.folder} has no {kind} of step {step}; those there are: {steps}")
        return read_table(path, columns, where, parameters)

    def _repair(self) -> None:
        """Truncate lines that a killed process left unfinished."""
        for name in ("history.jsonl", *self._cut):  # first the one into which the repairs of the others are written
            journal = self._journals[name]
            dropped = journal.drop_unfinished()
            if dropped:
                what = f"dropped {dropped} bytes of an unfinished last line from {name}"
                self.log_history("repaired", f"{what}: the process was killed in it", file=name, bytes=dropped)
        restore_folders(self.folder)
        for path in (*self.folder.glob(".*.tmp"), *self.folder.glob("*/.*.tmp")):
            path.unlink()
        self._last_step = max((entry["step"] for entry in sound_lines(self.folder / "metrics.jsonl")), default=0)


def _step_path(folder: Path, step: int) -> Path:
    return folder / f"step_{step:06d}.parquet"


def _step_of(path: Path) -> int:
    return int(path.stem.removeprefix("step_"))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = parse_json(read_own(path, DOCUMENT).decode(), constants=True)
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UserError(f"{path} is not a JSON object: the file has been edited, or the disk damaged it")
    return value


def _write_yaml(path: Path, tree: Mapping[str, Any]) -> None:
    from posttrain.recipes.yaml_writer import tree_to_yaml

    write_file(path, tree_to_yaml(plain(tree)))


def _named(entry: dict[str, Any]) -> dict[str, Any]:
    """Metrics of a step by their names of today.

    Runs that recorded no entropy called the sampled NLL, an estimate of it, ``entropy``.
    """
    old = [key for key in entry if key.rpartition("/")[2] == "entropy" and f"{key[:-7]}{SAMPLED_NLL}" not in entry]
    return {f"{key[:-7]}{SAMPLED_NLL}" if key in old else key: value for key, value in entry.items()} if old else entry
