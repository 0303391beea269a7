"""An index of the rollouts of a run: the columns of search and 'solved', in few files instead of one for each step.

    RUN/.index/rollouts_000000_000999_<fingerprint>.parquet
    RUN/.index/rollouts_000000_000999_<fingerprint>.trigrams

Each table holds the rollouts of a thousand steps, or of fifty near the end of a run that grows, without their tokens;
beside it stands what shows that an expression cannot match in it. Its name has a fingerprint of the files that it was
made from: where they change, it has another name. Steps without a file of the index are read from their own, so that
the index is never needed and can be deleted at any time. A run of another user is only read.
"""

import bisect
import hashlib
import math
import os
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from posttrain.errors import RunFailed
from posttrain.errors.temporary import temporary_folder
from posttrain.runs.files import write_file
from posttrain.runs.reading import STEP, read_own
from posttrain.runs.tables import new_connection, quoted
from posttrain.viewer import trigrams

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")
FOLDER = ".index"
FORMAT = b"3"
SIZES = (1000, 50)
"""Steps in a file of the index: complete ranges of the first size, then of the second; the rest is not indexed."""
MOST_LOOSE = 200
"""Steps that are read from their own files while the index is made; the newest."""
ROWS = 2048
"""In a group of a table's rows, which is read whole for one of its texts."""
MOST = 2**30
"""Bytes of a file of the index at most."""
COLUMNS = (
    *("step", "stage", "group_index", "sample", "version", "task_key", "domain", "prompt", "images", "completion"),
    *("answer", "stop_reason", "reward", "score_status", "score_answer", "score_explanation", "dropped_reason"),
)
DERIVED = {
    "num_tokens": "len(token_ids)",
    "mean_logp": "list_avg(sampled_logp)",
    "mean_entropy": "list_avg(entropy)",
    "text_hash": "md5_number_lower(completion)",
    "reason": "TRY(json_extract_string(info, '$.reason'))",
    "weight": "TRY(json_extract_string(info, '$.weight')::DOUBLE)",
    "hint": "TRY(json_extract_string(info, '$.hint_share')::DOUBLE)",
    "lineage": "TRY(json_extract_string(info, '$.lineage'))",
    "side": "TRY(json_extract_string(info, '$.side'))",
    "rule": "TRY(json_extract_string(info, '$.rule'))",
    "margin": "TRY(json_extract_string(info, '$.margin')::DOUBLE)",
}
"""Numbers of a rollout, in place of its tokens and of comparisons of its text, and what its facts say of its choice."""
OF_TOKENS = ", ".join(f"{sql} AS {name}" for name, sql in DERIVED.items())


@dataclass(frozen=True, slots=True)
class Source:
    """Files that hold the rollouts of a range of steps."""

    first: int
    last: int
    files: tuple[Path, ...]
    indexed: bool

    @property
    def sql(self) -> str:
        """A query of all their rollouts."""
        names = ", ".join(map(quoted, self.files))
        own = ", ".join(DERIVED) if self.indexed else OF_TOKENS
        return f"SELECT {', '.join(COLUMNS)}, {own} FROM read_parquet([{names}], union_by_name = true)"


class Index:
    """The index of one run."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._building = threading.Lock()
        self._seen = _Seen(run)
        self._checked: set[Path] = set()
        self._trigrams: dict[Path, dict[str, trigrams.Bits]] = {}

    def steps(self) -> list[int]:
        """Steps whose rollouts are recorded, in order."""
        with self._lock:
            self._seen.refresh()
            return list(self._seen.steps)

    def sources(self, first: int = 0, last: int | None = None) -> list[Source]:
        """What to read for some steps, in the order of the steps."""
        with self._lock:
            self._seen.refresh()
            found: list[Source] = []
            loose: list[int] = []
            for start, end in self._seen.ranges():
                if end < first or (last is not None and start > last):
                    continue
                path = self._path(start, end)
                if path is not None and path.is_file() and not path.is_symlink():
                    found += self._loose(loose)
                    loose = []
                    found.append(Source(start, end, (path,), True))
                else:
                    steps = self._seen.within(max(start, first), end if last is None else min(end, last))
                    loose += steps
            return [*found, *self._loose(loose)]

    def may_match(self, source: Source, text: str, wanted: Sequence[bytes]) -> bool:
        """Whether texts of a file of the index may contain some literals."""
        if not source.indexed or not wanted:
            return True
        [path] = source.files
        if path not in self._trigrams:
            found = _unpacked(path)
            if found is None:
                return True
            self._trigrams[path] = found[1]
        return trigrams.may_match(self._trigrams[path][text], wanted)

    def build(self) -> None:
        """Write the files of the index that are missing or damaged, and remove those of former times."""
        if not self._building.acquire(blocking=False):
            return
        try:
            folder = self._run / FOLDER
            if folder.is_symlink() or not _is_ours(self._run):
                return
            with self._lock:
                self._seen.refresh()
                wanted = {path: (a, b) for a, b in self._seen.ranges() if (path := self._path(a, b)) is not None}
            for path in wanted:
                self._check(path)
            missing = [(path, *of) for path, of in wanted.items() if not path.is_file()]
            if missing:
                folder.mkdir(exist_ok=True)
            for path, first, last in missing:
                with self._lock:
                    source = self._made_from(first, last)
                _write(path, source)
                self._checked.add(path)
            if folder.is_dir():
                for path in folder.glob("rollouts_*"):
                    if path.with_suffix(".parquet") not in wanted:
                        path.unlink(missing_ok=True)
                        self._trigrams.pop(path, None)
        except (OSError, duckdb_error()):
            pass  # a run that cannot be written to, a full disk, a damaged table: there is no index then
        finally:
            self._building.release()

    def build_soon(self) -> None:
        """The same in a thread, unless it goes on already."""
        if not self._building.locked():
            threading.Thread(target=self.build, name="posttrain-index", daemon=True).start()

    def is_building(self) -> bool:
        """Whether files of the index are being made."""
        return self._building.locked()

    def check(self) -> None:
        """Remove what is damaged."""
        self._checked.clear()
        for path in (self._run / FOLDER).glob("rollouts_*.parquet"):
            if _is_ours(self._run) and not path.parent.is_symlink():
                self._check(path)

    def forget(self) -> None:
        """Remove an index that cannot be read."""
        folder = self._run / FOLDER
        if folder.is_dir() and not folder.is_symlink() and _is_ours(self._run):
            shutil.rmtree(folder, ignore_errors=True)
        self._trigrams.clear()
        self._checked.clear()

    def _loose(self, steps: Sequence[int]) -> list[Source]:
        """Steps that no file of the index holds."""
        return [Source(steps[0], steps[-1], tuple(map(self._seen.file, steps)), False)] if steps else []

    def _made_from(self, first: int, last: int) -> Source:
        """What a file of the index is made from: smaller ones where they are there, else the files of the steps."""
        starts = range(first, last + 1, SIZES[1]) if last - first + 1 > SIZES[1] else ()
        paths = [path for start in starts if (path := self._path(start, start + SIZES[1] - 1)) is not None]
        if paths and all(path in self._checked and path.is_file() for path in paths):
            return Source(first, last, tuple(paths), True)
        return Source(first, last, tuple(map(self._seen.file, self._seen.within(first, last))), False)

    def _path(self, start: int, end: int) -> Path | None:
        """Where the index of a range is; None for one that is not indexed, or has no steps."""
        fingerprint = self._seen.fingerprint(start, end) if end - start + 1 in SIZES else None
        return self._run / FOLDER / f"rollouts_{start:06d}_{end:06d}_{fingerprint}.parquet" if fingerprint else None

    def _check(self, path: Path) -> None:
        """Remove a table of the index, once in the life of the process, where it is not what was written."""
        if path in self._checked or not path.is_file():
            return
        found = _unpacked(path)
        if found is None or trigrams.digest(read_own(path, MOST)) != found[0]:
            path.unlink()
            self._trigrams.pop(path, None)
        else:
            self._checked.add(path)


class _Seen:
    """The tables of a run, as they were seen last. A refresh costs as much as is new."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._stamp: tuple[object, object] = (None, None)
        self._names: set[str] = set()
        self._of_step: dict[int, tuple[str, int, int]] = {}
        self._fingerprints: dict[tuple[int, int], str] = {}
        self.steps: list[int] = []

    def refresh(self) -> None:
        """Find out which tables there are, if the folder has changed; examine all again after the run was opened."""
        history = _stamp_of(self._run / "history.jsonl")
        stamp = _stamp_of(self._run / "rollouts"), history
        if stamp == self._stamp and stamp[0] is not None:
            return
        try:
            folder = os.open(self._run / "rollouts", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            self.__init__(self._run)  # type: ignore[misc]
            return
        try:
            names = set(os.listdir(folder))
            if history != self._stamp[1] or not names.issuperset(self._names):
                self.__init__(self._run)  # type: ignore[misc]
            added = names - self._names
            for name in sorted(added):
                self._examine(folder, name)
        finally:
            os.close(folder)
        self._names = names
        self._stamp = stamp

    def ranges(self) -> list[tuple[int, int]]:
        """Ranges of steps in which some are recorded; the last is what is never indexed."""
        if not self.steps:
            return []
        newest = self.steps[-1]
        large, small = newest // SIZES[0] * SIZES[0], newest // SIZES[1] * SIZES[1]
        starts = [(start, start + SIZES[0] - 1) for start in range(0, large, SIZES[0])]
        starts += [(start, start + SIZES[1] - 1) for start in range(large, small, SIZES[1])]
        return [(a, b) for a, b in [*starts, (small, newest)] if self._places(a, b)]

    def within(self, first: int, last: int) -> list[int]:
        """The recorded steps of a range."""
        places = self._places(first, last)
        return self.steps[places.start : places.stop]

    def file(self, step: int) -> Path:
        """The table of a step."""
        return self._run / "rollouts" / self._of_step[step][0]

    def fingerprint(self, first: int, last: int) -> str:
        """A digest of names, sizes and times of the tables of a range."""
        if (first, last) not in self._fingerprints:
            digest = hashlib.blake2b(FORMAT, digest_size=12)
            for step in self.within(first, last):
                _, size, changed = self._of_step[step]
                digest.update(f"{step} {size} {changed}\n".encode())
            self._fingerprints[first, last] = digest.hexdigest()
        return self._fingerprints[first, last]

    def _places(self, first: int, last: int) -> range:
        return range(bisect.bisect_left(self.steps, first), bisect.bisect_right(self.steps, last))

    def _examine(self, folder: int, name: str) -> None:
        """Note a table, if it is one."""
        match = STEP.fullmatch(name)
        found = os.stat(name, dir_fd=folder, follow_symlinks=False) if match else None
        if match is None or found is None or not stat.S_ISREG(found.st_mode):
            return
        step = int(match[1])
        if step not in self._of_step:
            if self.steps and step < self.steps[-1]:
                bisect.insort(self.steps, step)
            else:
                self.steps.append(step)
        self._of_step[step] = name, found.st_size, found.st_mtime_ns
        for size in SIZES:
            self._fingerprints.pop((step // size * size, step // size * size + size - 1), None)


_indexes: dict[Path, Index] = {}


def index_of(run: Path) -> Index:
    """The index of a run, the same one for as long as the process lasts."""
    return _indexes.setdefault(run, Index(run))


def with_index(
    run: Path, query: Callable[[Sequence[Source]], T], first: int = 0, last: int | None = None
) -> tuple[T, int]:
    """What a query gives of the index and the steps that are not in it, and how many steps are left out.

    While the index of a long run is made, few of the steps that it does not have yet are read from their own files.
    What is damaged is removed from it.
    """
    index = index_of(run)
    index.build_soon()
    for failed in range(3):
        sources, left_out = _some(index.sources(first, last), index.is_building())
        try:
            return query(sources), left_out
        except RunFailed:
            if not any(source.indexed for source in sources):
                raise
            index.forget() if failed else index.check()
    raise AssertionError


def _some(sources: Sequence[Source], building: bool) -> tuple[list[Source], int]:
    """Sources without most of the steps that have no index, if they get one soon."""
    kept, room, left_out = [], MOST_LOOSE if building else math.inf, 0
    for source in reversed(sources):
        if source.indexed or len(source.files) <= room:
            kept.append(source)
            room -= 0 if source.indexed else len(source.files)
        else:
            some = source.files[len(source.files) - int(room) :]
            left_out += len(source.files) - len(some)
            kept += [Source(source.first, source.last, some, False)] if some else []
            room = 0
    return kept[::-1], left_out


def union(sources: Sequence[Source]) -> str:
    """The FROM clause of a query of the index, and of steps that are not in it."""
    indexed = [file for source in sources if source.indexed for file in source.files]
    loose = [file for source in sources if not source.indexed for file in source.files]
    parts = [Source(0, 0, tuple(files), kind).sql for files, kind in ((indexed, True), (loose, False)) if files]
    return f"({' UNION ALL BY NAME '.join(parts)})"


def duckdb_error() -> type[Exception]:
    """The library's error, imported where it is needed."""
    import duckdb

    return duckdb.Error


def _write(path: Path, source: Source) -> None:
    """One file of the index, made elsewhere and put in place whole, after what shows whether it is."""
    with temporary_folder("index") as folder, new_connection() as connection:
        made = folder / "made.parquet"
        rows = f"{source.sql} ORDER BY step, group_index, sample"
        options = f"FORMAT parquet, COMPRESSION snappy, ROW_GROUP_SIZE {ROWS}"
        connection.execute(f"COPY ({rows}) TO {quoted(made)} ({options})")
        content = made.read_bytes()
        found = [trigrams.bits(_texts(connection, made, column)) for column in trigrams.TEXTS]
    write_file(path.with_suffix(".trigrams"), trigrams.packed(content, found))
    write_file(path, content)


def _texts(connection: "duckdb.DuckDBPyConnection", table: Path, column: str) -> Iterator[str]:
    """The texts of a column, read piece by piece."""
    given = connection.execute(f"SELECT {column} FROM read_parquet({quoted(table)}) WHERE {column} IS NOT NULL")
    while some := given.fetchmany(1000):
        yield from (text for (text,) in some)


def _unpacked(table: Path) -> tuple[bytes, dict[str, trigrams.Bits]] | None:
    """What stands beside a table of the index; None where it is missing or damaged."""
    try:
        return trigrams.unpacked(read_own(table.with_suffix(".trigrams"), trigrams.SIZE))
    except Exception:  # missing, a link, of another size
        return None


def _is_ours(run: Path) -> bool:
    """Whether a run is the user's own. One of another user is never written to, also where that is permitted."""
    return run.stat().st_uid == os.geteuid()


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
