"""SQL queries over the Parquet tables of a run.

Only the columns of a query are read, and of the rollouts of all steps only the index, where there is one: a table of
what was solved does not read texts. Searches are in `posttrain.viewer.search`.
"""

import secrets
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

from posttrain.runs.reading import step_files
from posttrain.runs.store import GIVEN
from posttrain.runs.tables import quoted
from posttrain.viewer.database import Row, query
from posttrain.viewer.index import Source, index_of, union, with_index

SCORED = (
    *("task_key", "domain", "prompt", "images", "completion", "answer", "stop_reason"),
    *("reward", "score_status", "score_answer", "score_explanation"),
)
_GIVEN = "SELECT %s, -list_avg(trained_logp) AS nats FROM %s WHERE ends_with(evaluation, ?) %s ORDER BY step, sample"
ROLLOUT = ("step", "stage", "group_index", "sample", "version", *SCORED, "dropped_reason", "num_tokens", "mean_logp")


def groups(run: Path, step: int) -> list[Row]:
    """The groups of a step: task, mean and std of rewards, and ``rollouts``, one struct per rollout."""
    files = _files(run, "rollouts", step, step)
    if not files:
        return []
    return query(
        "SELECT group_index, first(task_key) AS task_key, first(domain) AS domain, first(prompt) AS prompt, "
        "first(answer) AS answer, first(stage) AS stage, count(*) AS size, avg(reward) AS reward, "
        "stddev_pop(reward) AS spread, list({'sample': sample, 'reward': reward, 'status': score_status, "
        "'stop': stop_reason, 'dropped': dropped_reason, 'num_tokens': len(token_ids)} ORDER BY sample) AS rollouts "
        f"FROM {_tables(files)} GROUP BY group_index ORDER BY group_index"
    )


def group(run: Path, step: int, index: int, *, limit: int = 2**31, offset: int = 0) -> list[Row]:
    """Rollouts of a group, with all recorded columns: at most `limit`, from the `offset`-th on."""
    files = _files(run, "rollouts", step, step)
    part = f"ORDER BY sample LIMIT {limit:d} OFFSET {offset:d}"
    return query(f"SELECT * FROM {_tables(files)} WHERE group_index = ? {part}", [index], whole=True) if files else []


def samples(run: Path, step: int, index: int) -> list[int]:
    """The numbers of a group's rollouts, in order."""
    files = _files(run, "rollouts", step, step)
    sql = f"SELECT sample FROM {_tables(files)} WHERE group_index = ? ORDER BY sample" if files else ""
    return [int(row["sample"]) for row in query(sql, [index])] if files else []


def matches(texts: Sequence[str], expression: str) -> list[list[tuple[str, bool]]]:
    """Each text in parts: what a regular expression of RE2 matches (True), and what is between.

    The database puts a random text around each match, so that it decides what matches here as in a search.
    """
    if not texts:
        return []
    mark = secrets.token_hex(16)
    found = query(
        "SELECT regexp_replace(text, ?, ?, 'g') AS marked FROM (SELECT unnest(?::VARCHAR[]) AS text, "
        "generate_subscripts(?::VARCHAR[], 1) AS place) ORDER BY place",
        [f"({expression})", f"{mark}\\1{mark}", list(texts), list(texts)],
    )
    parts = [row["marked"].split(mark) for row in found]
    return [[(part, place % 2 == 1) for place, part in enumerate(own) if part] for own in parts]


def heldout(run: Path) -> list[Row]:
    """The greedy answers of all evaluations, without their texts."""
    files = _files(run, "evals")
    columns = "step, evaluation, task_key, prompt, reward, score_status"
    return query(f"SELECT {columns} FROM {_tables(files)} WHERE sample = 0 ORDER BY step") if files else []


def parts_of_evaluations(run: Path) -> list[Row]:
    """Means of every part of the scores of held-out answers, by evaluation and by the direction before the prompt."""
    files = _files(run, "evals")
    if not files:
        return []
    return query(
        "SELECT step, evaluation, direction, entry.key AS part, avg(entry.value.value) AS mean FROM (SELECT step, "
        "evaluation, regexp_extract(prompt, '^-?[0-9]+ -?[0-9]+') AS direction, unnest(map_entries(parts)) AS entry "
        f"FROM {_tables(files)} WHERE sample = 0 AND NOT ends_with(evaluation, ?)) "
        "WHERE entry.value.status <> 'error' GROUP BY ALL ORDER BY step, evaluation, direction, part",
        [GIVEN],
    )


def given(run: Path) -> list[Row]:
    """Held-out demonstrations and pairs of all evaluations, with the mean ``nats`` of their trained tokens."""
    files = _files(run, "evals")
    return (
        query(_GIVEN % ("step, evaluation, task_key, prompt, sample, info", _tables(files), ""), [GIVEN])
        if files
        else []
    )


def given_of(run: Path, task: str, *, most: int) -> list[Row]:
    """The first held-out texts of a task, with all recorded columns, in the order in which they were measured."""
    files = _files(run, "evals")
    part = "AND task_key = ? AND sample < ?"
    return query(_GIVEN % ("*", _tables(files), part), [GIVEN, task, most], whole=True) if files else []


def solved(run: Path, by: Literal["task", "domain"], *, most_rows: int, most_columns: int) -> Row:
    """Shares of correct rollouts by step: ``rows`` of ``cells``, and ``columns``, each its first and last step.

    Rows are the tasks or domains that were sampled in the most steps; a cell is None where none was sampled. Steps are
    merged where there are more than `most_columns`. ``left_out`` is the number of steps that are not counted yet.
    """
    steps = index_of(run).steps()
    if not steps:
        return {"rows": [], "columns": [], "in_all": 0, "left_out": 0}
    size = -(-len(steps) // most_columns)
    columns = [(steps[i], steps[min(i + size, len(steps)) - 1]) for i in range(0, len(steps), size)]
    found, left_out = with_index(run, lambda sources: _solved(sources, by, columns, most_rows))
    return {**found, "left_out": left_out}


def _solved(
    sources: Sequence[Source], by: Literal["task", "domain"], columns: Sequence[tuple[int, int]], most_rows: int
) -> Row:
    key = "task_key" if by == "task" else "coalesce(nullif(domain, ''), '(none)')"
    column = " + ".join(f"(step >= {first})::INTEGER" for first, _ in columns)
    if len(columns) > 1 and len({b - a for (a, _), (b, _) in pairwise(columns)}) == 1:  # as nearly always: far faster
        column = f"(step - {columns[0][0]}) // {columns[1][0] - columns[0][0]} + 1"
    found = query(
        f"WITH counted AS (SELECT {key} AS key, {column} AS place, min(step) AS seen, "
        "count(*) FILTER (score_status = 'ok') AS ok, count(*) FILTER (score_status <> 'error') AS scored "
        f"FROM {union(sources)} WHERE score_status IS NOT NULL GROUP BY ALL), "
        "chosen AS (SELECT key, count(*) AS times, min(seen) AS seen, count(*) OVER () AS in_all FROM counted "
        f"GROUP BY key ORDER BY times DESC, key LIMIT {most_rows:d}) "
        "SELECT key, place, chosen.seen AS seen, ok, scored, in_all FROM chosen JOIN counted USING (key) "
        "ORDER BY times DESC, key, place"
    )
    rows: dict[str, Row] = {}
    for entry in found:
        row = rows.setdefault(entry["key"], {"key": entry["key"], "seen": entry["seen"], "counts": {}})
        row["counts"][entry["place"] - 1] = entry["ok"], entry["scored"]
    chosen = list(rows.values())
    prompts = _prompts(sources, key, {row["key"]: row.pop("seen") for row in chosen})
    for row in chosen:
        counts = row.pop("counts")
        shares = [counts.get(i, (0, 0)) for i in range(len(columns))]
        row["prompt"] = prompts.get(row["key"], "")
        row["cells"] = [{"share": ok / scored, "scored": scored} if scored else None for ok, scored in shares]
    return {"rows": chosen, "columns": list(columns), "in_all": found[0]["in_all"] if found else 0}


def _prompts(sources: Sequence[Source], key: str, seen: Mapping[str, int]) -> dict[str, str]:
    """A prompt of each key, from the step at which it was first seen."""
    steps = sorted(set(seen.values()))
    near = [source for source in sources if any(source.first <= step <= source.last for step in steps)]
    if not near:
        return {}
    found = query(
        f"SELECT {key} AS key, min(prompt) AS prompt FROM {union(near)} "
        f"WHERE step IN ({', '.join(map(str, steps))}) GROUP BY ALL"
    )
    return {row["key"]: row["prompt"] for row in found}


def answers(run: Path, step: int, name: str) -> dict[str, Row]:
    """The greedy answer to every held-out task in one evaluation, by task key."""
    files = _files(run, "evals", step, step)
    if not files:
        return {}
    columns = ", ".join(SCORED)
    found = query(f"SELECT {columns} FROM {_tables(files)} WHERE evaluation = ? AND sample = 0", [name], whole=True)
    return {row["task_key"]: row for row in found}


def history(run: Path, task: str) -> tuple[list[Row], list[Row], int]:
    """All answers to one task: rollouts in training by step, and greedy held-out answers.

    The last value is the number of steps that are left out while the index is made.
    """
    columns = ", ".join(ROLLOUT)
    sql = f"SELECT {columns} FROM %s WHERE task_key = ? ORDER BY step, group_index, sample"
    tried, left_out = with_index(
        run, lambda sources: query(sql % union(sources), [task], whole=True) if sources else []
    )
    columns = ", ".join(("step", "evaluation", "sample", *SCORED))
    files = _files(run, "evals")
    sql = f"SELECT {columns} FROM {_tables(files)} WHERE task_key = ? AND NOT ends_with(evaluation, ?) ORDER BY step"
    answered = query(sql, [task, GIVEN], whole=True) if files else []
    return tried, [row for row in answered if row["sample"] == 0], left_out


def _files(run: Path, kind: str, first: int = 0, last: int | None = None) -> list[Path]:
    """The table files of a range of steps, sorted by step."""
    if first == last:  # a run may have a hundred thousand
        file = run / kind / f"step_{first:06d}.parquet"
        there = not any(place.is_symlink() for place in (file, file.parent)) and file.is_file()
        return [file] if there else []
    files = step_files(run / kind)
    return [file for step, file in files.items() if first <= step and (last is None or step <= last)]


def _tables(files: Sequence[Path]) -> str:
    """The FROM clause of a query. Files of different steps may have different columns."""
    return f"read_parquet([{', '.join(map(quoted, files))}], union_by_name = true)"
