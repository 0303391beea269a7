"""Trajectories as Parquet: one row each, with list columns for tokens.

The files are read by anything that reads Parquet; in DuckDB, for example::

    SELECT step, avg(reward), avg(parts['format'].value) FROM 'rollouts/*.parquet' GROUP BY step ORDER BY step

All token lists of a row have one entry for each of its tokens, prompt included; an entry is null where the number was
not computed (prompts have no advantage), and the whole list is null where it was not computed for the trajectory. Where
models write points and not text, ``vectors`` has those of each token that a model wrote.
The same rows give the same bytes.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from posttrain.datasets.images import encoded
from posttrain.errors.foreign import guard
from posttrain.runs.files import put_in_place, sync
from posttrain.runs.journal import plain
from posttrain.runs.rows import check_size, fetched
from posttrain.signals import ADVANTAGE, ENTROPY, LOGP, OLD_VALUE
from posttrain.types import FloatArray, Image, Score, Trajectory

if TYPE_CHECKING:
    import duckdb

SCHEMA_VERSION = 1
MOST_COPIED = 200_000
"""Bytes of a picture in a file of the user's that is copied into the record, to be shown from there."""
LARGEST = 512 * 2**20
"""Bytes of what is read of a table at once; evaluations of ten thousand tasks have a tenth of it."""
MEMORY = "500MB"
"""What the database may take to read a table, whatever it unpacks to."""
SIGNALS = (LOGP.column, ENTROPY.column, "ratio", ADVANTAGE.column, OLD_VALUE.column)
"""Token columns that every file has; others (``reference_logp``, ...) come after them in alphabetical order."""

_SCORE = "STRUCT(value DOUBLE, status VARCHAR, answer VARCHAR, explanation VARCHAR)"
_SEGMENT = (
    "STRUCT(actor VARCHAR, length INTEGER, trained BOOLEAN, version INTEGER, turn INTEGER, state_key VARCHAR, "
    "reward DOUBLE)"
)

_EVALUATION = "SELECT evaluation::VARCHAR FROM given_name"

_TEXTS = ("stage", "task_key", "domain", "prompt", "completion", "answer", "stop_reason", "dropped_reason")
_SCORE_TEXTS = ("score_status", "score_answer", "score_explanation")
_INTEGERS = ("group_index", "sample", "parent", "version")

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class RolloutTable:
    """Trajectories laid out in columns, ready to be written. Made by `rollout_rows`."""

    rows: Columns
    """One entry per trajectory, in order."""
    segments: Columns
    """One entry per segment; ``row`` is the trajectory."""
    parts: Columns
    """One entry per part of a score; ``row`` is the trajectory."""
    tokens: Columns
    """One entry per token; ``row`` is the trajectory, NaN is unknown."""
    signals: tuple[str, ...]
    """Names of the token columns that hold numbers of an objective."""
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    """Files to write next to the tables, by their path in the run's folder, which ``images`` refers to."""
    width: int = 0
    """Width of the vectors of tokens that a model wrote; 0 if there are none."""

    def __len__(self) -> int:
        """Number of trajectories."""
        return len(self.rows["row"])


def rollout_rows(
    trajectories: Sequence[Trajectory],
    *,
    stage: str = "",
    groups: Sequence[int] | None = None,
    dropped: Sequence[str | None] | None = None,
    columns: Sequence[Mapping[str, FloatArray]] | None = None,
) -> RolloutTable:
    """Lay trajectories out for the record.

    Args:
        trajectories: N of them, scored or not.
        stage: Name of the stage they belong to.
        groups: N indices of the groups that they were compared in; without it each is its own.
        dropped: N reasons for not learning from them; None where it was learned from.
        columns: N mappings from a name (``advantage``, ``trained_logp``, ``reference_logp``, ...) to [T] numbers, one
            for each trained token.
    """
    count = len(trajectories)
    groups = range(count) if groups is None else groups
    dropped = [None] * count if dropped is None else dropped
    columns = [{}] * count if columns is None else columns
    assert len(groups) == len(dropped) == len(columns) == count, "one group, reason and mapping a trajectory"
    signals = (*SIGNALS, *sorted({name for own in columns for name in own} - set(SIGNALS)))
    width = max((s.vectors.shape[1] for t in trajectories for s in _with_vectors(t)), default=0)
    rows = {
        "row": np.arange(count, dtype=np.int32),
        "group_index": np.asarray(groups, np.int32),
        **_task_columns(trajectories, stage, dropped),
        **_score_columns(trajectories),
        **{f"has_{name}": np.array([name in own for own in columns], bool) for name in signals},
        f"has_{ENTROPY.column}": np.array([_has_entropy(t, own) for t, own in zip(trajectories, columns, strict=True)]),
        "has_sampled_logp": np.array([any(s.logp is not None for s in t.segments) for t in trajectories], bool),
    }
    return RolloutTable(
        rows=rows,
        segments=_segment_columns(trajectories),
        parts=_part_columns(trajectories),
        tokens=_token_columns(trajectories, columns, signals) | _vector_columns(trajectories, width),
        signals=signals,
        pictures={
            picture_file(image): encoded(image)
            for image in {picture_file(image): image for t in trajectories for image in t.task.images}.values()
            if not image.path or Path(image.path).stat().st_size <= MOST_COPIED
        },
        width=width,
    )


def picture_file(image: Image) -> str:
    """The path of a picture in a run's folder, where it is small enough to be copied there."""
    return f"images/{hashlib.blake2b(image.path.encode() or image.data, digest_size=12).hexdigest()}"


def write_table(table: RolloutTable, path: Path, *, step: int, evaluation: str | None = None) -> None:
    """Write a Parquet file. With `evaluation` the rows carry that name, and join those of others in the file."""
    given = {name: getattr(table, name) for name in ("rows", "segments", "parts", "tokens")}
    given["name"] = {"evaluation": _texts([evaluation])}
    query = _query(table.signals, step, named=evaluation is not None, width=table.width)
    if evaluation is not None and path.exists():
        others = f"SELECT * FROM read_parquet({quoted(path)}) WHERE evaluation <> ({_EVALUATION})"
        query = f"({others}) UNION ALL BY NAME ({query})"
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with _cursor() as cursor:
            for name, columns in given.items():
                cursor.register(f"given_{name}", columns)
            cursor.execute(f"COPY ({query}) TO {quoted(temporary)} (FORMAT parquet, COMPRESSION zstd)")
        if path.exists():  # evaluations that a checkpoint may count on are in it
            sync(temporary)
        put_in_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_table(
    path: Path, columns: Sequence[str] = (), where: str = "true", parameters: Sequence[object] = ()
) -> list[dict[str, Any]]:
    """Rows of a file as dicts: the named columns, or all. `where` is a condition in SQL, with ``?`` for parameters.

    Raises `UserError` for a file that is damaged, or that holds more than any run writes.
    """
    selected = ", ".join(f'"{name}"' for name in columns) or "*"
    with guard(f"{path} cannot be read"), _cursor(MEMORY) as cursor:
        query = f"SELECT {selected} FROM read_parquet({quoted(path)}) WHERE {where}"
        check_size(cursor, query, parameters, LARGEST)
        return fetched(cursor.execute(query, parameters), LARGEST)


def new_connection(memory: str | None = None) -> "duckdb.DuckDBPyConnection":
    """A database in memory that uses one thread (so that its output is repeatable), never the network, and never a
    file in the working folder, where it would put what does not fit into memory, of which it takes at most `memory`.
    It keeps no contents of files, which a run may write anew.
    """
    import duckdb

    config: dict[str, Any] = {"threads": 1, "autoinstall_known_extensions": False, "temp_directory": ""}
    config["enable_external_file_cache"] = False
    return duckdb.connect(":memory:", config=config if memory is None else config | {"memory_limit": memory})


@contextmanager
def _cursor(memory: str | None = None) -> "Iterator[duckdb.DuckDBPyConnection]":
    """A connection of its own to the database of this process with that bound, which took 15 ms to open."""
    import duckdb

    with _database(os.getpid(), memory).cursor() as cursor:
        try:
            yield cursor
        except (duckdb.FatalException, duckdb.InternalException):
            _database.cache_clear()  # it would refuse all queries from now on
            raise


@cache
def _database(process: int, memory: str | None) -> "duckdb.DuckDBPyConnection":
    """The database of a process, so that a forked one opens its own."""
    return new_connection(memory)


def quoted(value: str | Path) -> str:
    """A string literal of SQL."""
    return "'" + str(value).replace("'", "''") + "'"


def clean_text(text: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot hold, replaced by the replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _query(signals: Sequence[str], step: int, *, named: bool, width: int = 0) -> str:
    """The SELECT that joins the four tables into one row per trajectory."""
    token_lists = {"token_ids": "token_id", "trained": "trained", "sampled_logp": "sampled_logp"}
    token_lists |= {name: name for name in signals}
    lists = ", ".join(f'list("{source}" ORDER BY position) AS "{name}"' for name, source in token_lists.items())
    optional = ", ".join(
        f'CASE WHEN "has_{name}" THEN coalesce("{name}", []) END::FLOAT[] AS "{name}"'
        for name in ("sampled_logp", *signals)
    )
    if width:
        numbers = ", ".join(f'"vector_{i}"' for i in range(width))
        lists += f', list(CASE WHEN "has_vector" THEN [{numbers}] END ORDER BY position) AS vectors'
        optional += ", vectors::FLOAT[][] AS vectors"
    evaluation = f"({_EVALUATION}) AS evaluation, " if named else ""
    texts = {name: f"{name}::VARCHAR AS {name}" for name in (*_TEXTS, *_SCORE_TEXTS, "info", "images")}
    integers = {name: f"{name}::INTEGER AS {name}" for name in _INTEGERS}
    pick = texts | integers
    place = ("stage", "task_key", "domain", "group_index", "sample", "parent", "version")
    before = (*place, "prompt", "completion", "answer", "stop_reason")
    return f"""
        SELECT {SCHEMA_VERSION} AS schema_version, {step}::INTEGER AS step, {evaluation}
            {", ".join(pick[name] for name in before)},
            reward::DOUBLE AS reward, {", ".join(pick[name] for name in _SCORE_TEXTS)},
            coalesce(parts, MAP {{}})::MAP(VARCHAR, {_SCORE}) AS parts,
            {pick["dropped_reason"]}, {pick["info"]}, {pick["images"]},
            coalesce(segments, [])::{_SEGMENT}[] AS segments,
            coalesce(token_ids, [])::INTEGER[] AS token_ids,
            coalesce(trained, [])::BOOLEAN[] AS trained,
            {optional}
        FROM given_rows
        LEFT JOIN (
            SELECT "row", list(struct_pack(actor := actor, length := length, trained := trained, version := version,
                turn := turn, state_key := state_key::VARCHAR, reward := reward::DOUBLE) ORDER BY position) AS segments
            FROM given_segments GROUP BY "row"
        ) USING ("row")
        LEFT JOIN (
            SELECT "row", map(list(name::VARCHAR ORDER BY position), list(struct_pack(value := value::DOUBLE,
                status := status::VARCHAR, answer := answer::VARCHAR, explanation := explanation::VARCHAR)
                ORDER BY position)) AS parts
            FROM given_parts GROUP BY "row"
        ) USING ("row")
        LEFT JOIN (SELECT "row", {lists} FROM given_tokens GROUP BY "row") USING ("row")
        ORDER BY "row"
    """


def _task_columns(trajectories: Sequence[Trajectory], stage: str, dropped: Sequence[str | None]) -> Columns:
    """Prompt, completion and position of each trajectory."""
    return {
        "stage": _texts([stage] * len(trajectories)),
        "task_key": _texts([t.task.key for t in trajectories]),
        "domain": _texts([t.task.domain for t in trajectories]),
        "prompt": _texts([_prompt(t) for t in trajectories]),
        "completion": _texts([t.completion for t in trajectories]),
        "answer": _texts([t.task.answer for t in trajectories]),
        "stop_reason": _texts([t.stop_reason for t in trajectories]),
        "dropped_reason": _texts(dropped),
        "info": _texts([_info(t) for t in trajectories]),
        "images": _texts([_images(t) for t in trajectories]),
        "sample": np.array([t.sample for t in trajectories], np.int32),
        "parent": np.ma.masked_array(
            np.array([t.parent or 0 for t in trajectories], np.int32), mask=[t.parent is None for t in trajectories]
        ),
        "version": np.array([_version(t) for t in trajectories], np.int32),
    }


def _info(trajectory: Trajectory) -> str | None:
    """All facts of a trajectory as one JSON object."""
    entries: dict[str, Any] = {}
    for fact in trajectory.facts:
        entries |= fact.record()
    return json.dumps(plain(entries)) if entries else None


def _images(trajectory: Trajectory) -> str | None:
    """Paths of the pictures of a rollout's task, as JSON, in the run's folder."""
    paths = [picture_file(image) for image in trajectory.task.images]
    return json.dumps(paths) if paths else None


def _score_columns(trajectories: Sequence[Trajectory]) -> Columns:
    """The score; null if there is none."""
    scores = [t.score for t in trajectories]
    return {
        "reward": np.array([s.value if s else np.nan for s in scores], np.float64),
        "score_status": _texts([s.status if s else None for s in scores]),
        "score_answer": _texts([s.answer if s else None for s in scores]),
        "score_explanation": _texts([s.explanation if s else None for s in scores]),
    }


def _segment_columns(trajectories: Sequence[Trajectory]) -> Columns:
    """The segments of each trajectory with their actors."""
    owned = [(row, place, s) for row, t in enumerate(trajectories) for place, s in enumerate(t.segments)]
    return {
        "row": np.array([row for row, _, _ in owned], np.int32),
        "position": np.array([place for _, place, _ in owned], np.int32),
        "actor": _texts([s.actor for _, _, s in owned]),
        "length": np.array([len(s) for _, _, s in owned], np.int32),
        "trained": np.array([s.trained for _, _, s in owned], bool),
        "version": np.array([s.version for _, _, s in owned], np.int32),
        "turn": np.array([s.turn for _, _, s in owned], np.int32),
        "state_key": _texts([s.state_key for _, _, s in owned]),
        "reward": np.array([s.reward for _, _, s in owned], np.float64),
    }


def _part_columns(trajectories: Sequence[Trajectory]) -> Columns:
    """The parts of each score; parts of parts are named ``outer/inner``."""
    found: list[tuple[int, int, str, Score]] = []
    for row, trajectory in enumerate(trajectories):
        flat = _flatten("", trajectory.score) if trajectory.score else []
        found += [(row, place, name, score) for place, (name, score) in enumerate(flat)]
    return {
        "row": np.array([row for row, *_ in found], np.int32),
        "position": np.array([place for _, place, *_ in found], np.int32),
        "name": _texts([name for *_, name, _ in found]),
        "value": np.array([score.value for *_, score in found], np.float64),
        "status": _texts([score.status for *_, score in found]),
        "answer": _texts([score.answer for *_, score in found]),
        "explanation": _texts([score.explanation for *_, score in found]),
    }


def _token_columns(
    trajectories: Sequence[Trajectory], columns: Sequence[Mapping[str, FloatArray]], signals: Sequence[str]
) -> Columns:
    """All tokens with their signals."""
    lengths = [len(t.token_ids) for t in trajectories]
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    total = int(starts[-1])
    row = np.repeat(np.arange(len(trajectories), dtype=np.int32), lengths)
    tokens: Columns = {
        "row": row,
        "position": (np.arange(total) - starts[row]).astype(np.int32),
        "token_id": np.zeros(total, np.int32),
        "trained": np.zeros(total, bool),
        "sampled_logp": np.full(total, np.nan, np.float32),
    }
    tokens |= {name: np.full(total, np.nan, np.float32) for name in signals}
    for trajectory, own, start in zip(trajectories, columns, starts[:-1], strict=True):
        trained = start + trajectory.trained_positions
        tokens["token_id"][start : start + len(trajectory.token_ids)] = trajectory.token_ids
        tokens["trained"][trained] = True
        tokens["sampled_logp"][start : start + len(trajectory.token_ids)] = _sampled_logp(trajectory)
        for name, values in own.items():
            assert len(values) == len(trained), f"{name} has {len(values)} numbers for {len(trained)} trained tokens"
            tokens[name][trained] = values
        known, drawn = _drawn_entropy(trajectory)
        tokens[ENTROPY.column][start : start + len(known)][known] = drawn
    return tokens


def _with_vectors(trajectory: Trajectory) -> list[Any]:
    """Segments that a model wrote in vectors: the points of chains."""
    return [s for s in trajectory.segments if s.vectors is not None and s.logp is not None]


def _vector_columns(trajectories: Sequence[Trajectory], width: int) -> Columns:
    """The vectors of tokens that a model wrote, one column per component. Prompts and observations have text."""
    if not width:
        return {}
    segments = [s for t in trajectories for s in t.segments]
    there = [s.vectors is not None and s.logp is not None for s in segments]
    rows = [
        s.vectors if had and s.vectors is not None else np.zeros((len(s), width), np.float32)
        for s, had in zip(segments, there, strict=True)
    ]
    vectors_LD = np.concatenate(rows).astype(np.float32)
    columns: Columns = {f"vector_{i}": np.ascontiguousarray(vectors_LD[:, i]) for i in range(width)}
    return columns | {"has_vector": np.repeat(there, [len(s) for s in segments])}


def _sampled_logp(trajectory: Trajectory) -> FloatArray:
    """[L] log-probability of each token when it was sampled, trained or not; NaN for tokens that were not sampled."""
    parts = [np.full(len(s), np.nan, np.float32) if s.logp is None else s.logp for s in trajectory.segments]
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros(0, np.float32)


def _has_entropy(trajectory: Trajectory, own: Mapping[str, FloatArray]) -> bool:
    """Whether the entropy of some token is known."""
    return ENTROPY.column in own or any(s.entropy is not None for s in trajectory.segments)


def _drawn_entropy(trajectory: Trajectory) -> tuple[NDArray[np.bool_], FloatArray]:
    """[L] which tokens were drawn from a distribution whose entropy the sampler gave, and their entropies.

    It goes before the learner's, which is that of later weights in all but the first update of a step.
    """
    parts = [np.full(len(s), np.nan, np.float32) if s.entropy is None else s.entropy for s in trajectory.segments]
    entropy_L = np.concatenate([np.zeros(0, np.float32), *parts]).astype(np.float32)
    known_L = np.isfinite(entropy_L)
    return known_L, entropy_L[known_L]


def _flatten(prefix: str, score: Score) -> list[tuple[str, Score]]:
    """Parts of a score with the parts of those, depth first."""
    flat: list[tuple[str, Score]] = []
    for name, part in score.parts.items():
        flat += [(f"{prefix}{name}", part), *_flatten(f"{prefix}{name}/", part)]
    return flat


def _prompt(trajectory: Trajectory) -> str:
    """The prompt as the model received it, else that of the task."""
    seen = "".join(s.text for s in trajectory.segments if s.actor == "prompt")
    if seen:
        return seen
    prompt = trajectory.task.prompt
    return prompt if isinstance(prompt, str) else "\n".join(f"{m['role']}: {m['content']}" for m in prompt)


def _version(trajectory: Trajectory) -> int:
    """Version of the weights that wrote the first trained token."""
    return next((s.version for s in trajectory.segments if s.trained), 0)


def _texts(values: Sequence[str | None]) -> NDArray[Any]:
    """Strings as an array for the database; None is null."""
    column = np.empty(len(values), object)
    column[:] = [None if value is None else clean_text(str(value)) for value in values]
    return column
