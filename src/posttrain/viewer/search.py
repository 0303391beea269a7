"""Search in the rollouts of a run.

A search in texts goes through the files of the index from the newest to the oldest, passes over those that cannot hold
a match, and stops when its time is over; what it has found is kept, and the next request goes on where it stopped. How
many steps were not searched yet is part of the answer: of all others it is what a search of everything would give.
"""

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, Literal

import numpy as np

from posttrain.viewer import database, trigrams
from posttrain.viewer.database import Row, query
from posttrain.viewer.index import Index, Source, index_of, union, with_index
from posttrain.viewer.notes import Rollout
from posttrain.viewer.questions import ROLLOUT
from posttrain.viewer.triage import NOTED, REASONS

SECONDS = 0.12
"""In which a request searches texts; it ends with the file that it has begun."""
MOST_SEARCHES: Final = 8
"""Whose matches are kept."""
MOST_MATCHES: Final = 4_000_000
"""Of all searches that are kept."""

ORDERS: Mapping[str, tuple[str, str]] = {
    "newest": ("newest", "step DESC, group_index, sample"),
    "oldest": ("oldest", "step, group_index, sample"),
    "highest": ("highest reward", "reward DESC NULLS LAST, step DESC, group_index, sample"),
    "lowest": ("lowest reward", "reward NULLS LAST, step DESC, group_index, sample"),
    "longest": ("longest", "num_tokens DESC, step DESC, group_index, sample"),
    "shortest": ("shortest", "num_tokens, step DESC, group_index, sample"),
    "surprising": ("least likely (mean log-probability)", "mean_logp NULLS LAST, step DESC, group_index, sample"),
    "uncertain": ("highest mean entropy", "mean_entropy DESC NULLS LAST, step DESC, group_index, sample"),
    "unlikely": (
        "highest reward at lowest probability",
        "reward DESC NULLS LAST, mean_logp NULLS LAST, step DESC, group_index, sample",
    ),
    "likely": ("most likely (mean log-probability)", "mean_logp DESC NULLS LAST, step DESC, group_index, sample"),
    "together": ("same task and answer together", "task_key, completion, reward NULLS LAST, step, group_index, sample"),
    "repeated": ("written most often, at any task", ""),
}
"""By name: the label on the page, and the SQL of ``ORDER BY``."""
COLUMNS: Mapping[str, str] = {
    "highest": "reward",
    "lowest": "reward",
    "longest": "num_tokens",
    "shortest": "num_tokens",
    "surprising": "mean_logp",
    "uncertain": "mean_entropy",
    "unlikely": "reward, mean_logp",
    "likely": "mean_logp",
    "together": "task_key, completion, reward",
    "repeated": "text_hash",
}
"""What an order takes besides the key."""
KEY = "step, group_index, sample"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A query for rollouts of a run."""

    text: str = ""
    """A regular expression (RE2)."""
    inside: Literal["completion", "prompt", "score_explanation"] = "completion"
    status: str = ""
    """``ok``, ``wrong``, ``error``, or ``none`` for those that were not scored."""
    stop: str = ""
    kept: Literal["", "kept", "dropped"] = ""
    stage: str = ""
    task: str = ""
    first: int = 0
    """The first step."""
    last: int = 0
    """The last step; 0 is no limit."""
    review: str = ""
    """A reason of `posttrain.viewer.triage`, or ``noted`` for those in `only`."""
    label: str = ""
    """With ``noted``: a label of one's own that they must have."""
    order: str = "newest"

    def given(self) -> dict[str, str]:
        """The fields that differ from their defaults, as query parameters."""
        plain = Wanted()
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) for name, value in values.items() if value != getattr(plain, name)}

    @property
    def condition(self) -> tuple[str, list[object]]:
        """An SQL condition and the values of its parameters."""
        parts = [f"step >= {self.first:d}"] if self.first else []
        parts += [f"step <= {self.last:d}"] if self.last else []
        values: list[object] = []
        if self.text:
            parts.append(f"regexp_matches({self.inside}, ?)")
            values.append(self.text)
        if self.status == "none":
            parts.append("score_status IS NULL")
        for column, value in (
            ("score_status", self.status if self.status != "none" else ""),
            ("stop_reason", self.stop),
            ("stage", self.stage),
            ("task_key", self.task),
        ):
            if value:
                parts.append(f"{column} = ?")
                values.append(value)
        if self.kept:
            parts.append(f"dropped_reason IS {'NOT ' if self.kept == 'dropped' else ''}NULL")
        return " AND ".join(parts) or "true", values


@dataclass(frozen=True, slots=True)
class Found:
    """Rollouts that match."""

    rows: list[Row]
    """Those of a page."""
    in_all: int
    """How many match in the steps that were searched."""
    left_out: int = 0
    """How many steps were not searched yet; 0 where the answer is whole."""


def rollouts(
    run: Path,
    wanted: Wanted,
    *,
    limit: int,
    offset: int = 0,
    only: Collection[Rollout] = (),
    seconds: float | None = None,
) -> Found:
    """Rollouts of a run that match, in the given order; `only` those that are noted.

    A search in texts takes about `seconds`, `SECONDS` unless given.

    Raises `UserError` for an invalid regular expression.
    """
    if wanted.text:
        query("SELECT regexp_matches('', ?)", [wanted.text])
    if wanted.review == NOTED and not only:
        return Found([], 0)

    def found(sources: Sequence[Source]) -> tuple[Found, int]:
        if wanted.text and not wanted.review:
            return _in_texts(run, sources, wanted, limit, offset, SECONDS if seconds is None else seconds)
        return _of_everything(sources, wanted, only, limit, offset), 0

    (page, later), left_out = with_index(run, found, wanted.first, wanted.last or None)
    return Found(page.rows, page.in_all, left_out + later)


def _of_everything(
    sources: Sequence[Source], wanted: Wanted, only: Collection[Rollout], limit: int, offset: int
) -> Found:
    """A page of what matches in some files, which are all asked at once."""
    if not sources:
        return Found([], 0)
    condition, values = wanted.condition
    if wanted.review == NOTED:
        condition += f" AND ({KEY}) IN ({', '.join(str(tuple(place)) for place in only)})"
    elif wanted.review:
        condition += " AND " + REASONS[wanted.review].condition.replace("{everything}", union(sources))
    matches = f"(SELECT {_columns(wanted)} FROM {union(sources)} WHERE {condition})"
    return _page(matches, values, sources, wanted.order, limit, offset)


def _in_texts(
    run: Path, sources: Sequence[Source], wanted: Wanted, limit: int, offset: int, seconds: float
) -> tuple[Found, int]:
    """A page of what an expression matches, as far as it was searched, and how many steps are still to be searched."""
    if not sources:
        return Found([], 0), 0
    search = _search_of(run, wanted)
    with search.lock:
        later = search.go_on(index_of(run), sources, seconds)
        loose = [source for source in sources if not source.indexed]
        condition, values = wanted.condition
        parts = [f"SELECT {_columns(wanted)} FROM {search.table}"]
        if loose:
            parts.append(f"SELECT {_columns(wanted)} FROM {union(loose)} WHERE {condition}")
        matches = f"({' UNION ALL '.join(parts)})"
        return _page(matches, values if loose else [], sources, wanted.order, limit, offset), later


def _columns(wanted: Wanted) -> str:
    """What is read of a rollout before it is on the page."""
    return ", ".join(filter(None, (KEY, COLUMNS.get(wanted.order))))


def _page(
    matches: str, values: Sequence[object], sources: Sequence[Source], order: str, limit: int, offset: int
) -> Found:
    """A page of some rollouts, of which all but their keys is read from the files that hold them."""
    if order == "repeated":
        keys, in_all = _repeated(matches, values, limit, offset)
    else:
        [counted] = query(f"SELECT count(*) AS in_all FROM {matches}", values)
        sql = f"SELECT {KEY}, 1 AS written FROM {matches} ORDER BY {ORDERS[order][1]} LIMIT {limit:d} OFFSET {offset:d}"
        in_all = int(counted["in_all"])
        keys = query(sql, values) if in_all > offset else []
    if not keys:
        return Found([], in_all)
    steps = sorted({key["step"] for key in keys})
    near = [source for source in sources if any(source.first <= step <= source.last for step in steps)]
    places = ", ".join(f"({key['step']}, {key['group_index']}, {key['sample']})" for key in keys)
    within = f"step IN ({', '.join(map(str, steps))}) AND ({KEY}) IN ({places})"
    rows = query(f"SELECT {', '.join(ROLLOUT)} FROM {union(near)} WHERE {within}", whole=True)
    found = {(row["step"], row["group_index"], row["sample"]): row for row in rows}
    shown = [(found.get((key["step"], key["group_index"], key["sample"])), key["written"]) for key in keys]
    return Found([{**row, "written": written} for row, written in shown if row is not None], in_all)


def _repeated(matches: str, values: Sequence[object], limit: int, offset: int) -> tuple[list[Row], int]:
    """Keys of rollouts by how often their text was written, and how many there are."""
    hashes = np.sort(database.column(f"SELECT text_hash FROM {matches}", values))
    starts = np.flatnonzero(np.concatenate(([True], hashes[1:] != hashes[:-1]))) if len(hashes) else np.zeros(0, int)
    counts = np.diff(np.append(starts, len(hashes)))
    wanted = min(limit + offset, len(counts))
    if len(hashes) <= offset:
        return [], len(hashes)
    least = np.partition(counts, -wanted)[-wanted]
    often = np.flatnonzero(counts > least)
    chosen = np.concatenate((often, np.flatnonzero(counts == least)[: wanted - len(often)]))
    written = {int(hashes[starts[i]]): int(counts[i]) for i in chosen}
    table = ", ".join(f"({text}::UBIGINT, {count})" for text, count in written.items())
    sql = (
        f"SELECT {KEY}, written FROM {matches} JOIN (VALUES {table}) chosen(text, written) ON text_hash = text "
        f"ORDER BY written DESC, text, step DESC, group_index, sample LIMIT {limit:d} OFFSET {offset:d}"
    )
    return query(sql, values), len(hashes)


class _Search:
    """The matches of an expression in the files of the index, as far as they were searched.

    They are a table of the database: a row for each has its key, and the column that orders them.
    """

    _numbers = itertools.count()

    def __init__(self, wanted: Wanted) -> None:
        self.lock = threading.Lock()
        self.table = f"search_{next(self._numbers)}"
        self.matches = 0
        self._wanted = wanted
        self._database = -1
        self._done: dict[Path, Source] = {}

    def go_on(self, index: Index, sources: Sequence[Source], seconds: float) -> int:
        """Search more files, the newest first, and at least one; how many steps are left."""
        self._renew(sources)
        wanted = trigrams.literals(self._wanted.text)
        inside = self._wanted.inside
        left = [source for source in sources if source.indexed and source.files[0] not in self._done]
        end = time.monotonic() + seconds
        size = 1
        while left:
            some: list[Source] = []
            while left and len(some) < size:
                source = left.pop()
                if index.may_match(source, inside, wanted):
                    some.append(source)
                else:
                    self._done[source.files[0]] = source
            began = time.monotonic()
            if some:
                self._insert(some)
            now = time.monotonic()
            if now >= end or _kept_matches() > MOST_MATCHES:
                break
            size = max(1, int(min(2 * size, size * (end - now) / max(now - began, 1e-6))))
        return sum(min(s.last, self._wanted.last or s.last) - max(s.first, self._wanted.first) + 1 for s in left)

    def _renew(self, sources: Sequence[Source]) -> None:
        """Remove what came from files that are no longer there; begin anew in a new database."""
        files = {source.files[0] for source in sources if source.indexed}
        if self._database != database.number():
            empty = f"SELECT {_columns(self._wanted)} FROM {union(sources[:1])} LIMIT 0"
            query(f"CREATE OR REPLACE TABLE {self.table} AS {empty}")
            self._database, self._done, self.matches = database.number(), {}, 0
        for path in [path for path in self._done if path not in files]:
            gone = self._done.pop(path)
            query(f"DELETE FROM {self.table} WHERE step BETWEEN {gone.first} AND {gone.last}")

    def _insert(self, some: Sequence[Source]) -> None:
        condition, values = self._wanted.condition
        sql = f"INSERT INTO {self.table} SELECT {_columns(self._wanted)} FROM {union(some)} WHERE {condition}"
        [inserted] = query(sql, values)
        self.matches += int(inserted["Count"])
        self._done |= {source.files[0]: source for source in some}


_searches: OrderedDict[tuple[Path, Wanted], _Search] = OrderedDict()
_registry = threading.Lock()


def _search_of(run: Path, wanted: Wanted) -> _Search:
    """The search for this, which may have begun; the ones that nobody asked for longest are forgotten."""
    with _registry:
        search = _searches.setdefault((run, wanted), _Search(wanted))
        _searches.move_to_end((run, wanted))
        while len(_searches) > 1 and (len(_searches) > MOST_SEARCHES or _kept_matches() > MOST_MATCHES):
            _, old = _searches.popitem(last=False)
            with old.lock:
                query(f"DROP TABLE IF EXISTS {old.table}")
        return search


def _kept_matches() -> int:
    return sum(search.matches for search in _searches.values())
