"""SQL queries over the Parquet tables of a run.

A question opens a database of its own, so that requests may ask at the same time. Columns are read one by one: a
search through texts does not touch the tokens.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from posttrain.errors import RunFailed, UserError
from posttrain.runs.tables import new_connection, quoted

Row = dict[str, Any]

JUDGED = (
    *("task_key", "domain", "prompt", "images", "completion", "answer", "stop_reason"),
    *("reward", "score_status", "score_answer", "score_explanation"),
)
ATTEMPT = ("step", "stage", "group_index", "sample", "version", *JUDGED, "dropped_reason")

ORDERS: Mapping[str, tuple[str, str]] = {
    "newest": ("newest", "step DESC, group_index, sample"),
    "oldest": ("oldest", "step, group_index, sample"),
    "highest": ("highest reward", "reward DESC NULLS LAST, step DESC, group_index, sample"),
    "lowest": ("lowest reward", "reward NULLS LAST, step DESC, group_index, sample"),
    "longest": ("longest", "len(token_ids) DESC, step DESC, group_index, sample"),
    "shortest": ("shortest", "len(token_ids), step DESC, group_index, sample"),
    "surprising": ("least likely (mean log-probability)", "list_avg(sampled_logp) NULLS LAST, step DESC"),
    "uncertain": ("highest mean entropy", "list_avg(entropy) DESC NULLS LAST, step DESC"),
    "repeated": ("written most often, at any task", "written DESC, completion, step DESC, group_index, sample"),
}
"""By name: how it is called on the page, and the SQL. They rank what to look at first, and judge nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which attempts of a run."""

    text: str = ""
    """A regular expression (RE2)."""
    inside: Literal["completion", "prompt", "score_explanation"] = "completion"
    status: str = ""
    """``ok``, ``wrong``, ``error``, or ``none`` for what nobody judged."""
    stop: str = ""
    kept: Literal["", "kept", "dropped"] = ""
    stage: str = ""
    task: str = ""
    first: int = 0
    """Steps from this one on."""
    last: int = 0
    """Steps up to this one; 0 is all."""
    order: str = "newest"

    def given(self) -> dict[str, str]:
        """What differs from asking for everything, as an address has it."""
        plain = Wanted()
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: str(value) for name, value in values.items() if value != getattr(plain, name)}


def attempts(run: Path, wanted: Wanted, *, limit: int, offset: int = 0) -> tuple[list[Row], int]:
    """Attempts of the run that fit, in the order that is wanted, and how many there are in all.

    Raises `UserError` for an expression that is none.
    """
    condition, parameters = _condition(wanted)
    files = _files(run, "rollouts", wanted.first, wanted.last or None)
    if not files:
        return [], 0
    order = ORDERS[wanted.order][1]
    written = "count(*) OVER (PARTITION BY completion)" if wanted.order == "repeated" else "1"
    columns = ", ".join(ATTEMPT)
    found = _ask(
        f"SELECT {columns}, len(token_ids) AS num_tokens, {written} AS written, count(*) OVER () AS in_all "
        f"FROM {_tables(files)} WHERE {condition} ORDER BY {order} LIMIT {limit:d} OFFSET {offset:d}",
        parameters,
    )
    if not found:
        [counted] = _ask(f"SELECT count(*) AS in_all FROM {_tables(files)} WHERE {condition}", parameters)
        return [], int(counted["in_all"])
    return found, int(found[0]["in_all"])


def groups(run: Path, step: int) -> list[Row]:
    """The groups of a step: what was asked, and ``attempts``, a struct for each."""
    files = _files(run, "rollouts", step, step)
    if not files:
        return []
    return _ask(
        "SELECT group_index, first(task_key) AS task_key, first(domain) AS domain, first(prompt) AS prompt, "
        "first(answer) AS answer, first(stage) AS stage, count(*) AS size, avg(reward) AS reward, "
        "stddev_pop(reward) AS spread, list({'sample': sample, 'reward': reward, 'status': score_status, "
        "'stop': stop_reason, 'dropped': dropped_reason, 'num_tokens': len(token_ids)} ORDER BY sample) AS attempts "
        f"FROM {_tables(files)} GROUP BY group_index ORDER BY group_index"
    )


def group(run: Path, step: int, index: int) -> list[Row]:
    """Every attempt of a group, with all that is recorded of it."""
    files = _files(run, "rollouts", step, step)
    return _ask(f"SELECT * FROM {_tables(files)} WHERE group_index = ? ORDER BY sample", [index]) if files else []


def solved(run: Path, by: Literal["task", "domain"], *, most_rows: int, most_columns: int) -> Row:
    """How often attempts were right, over the steps: ``rows`` of ``cells``, and ``columns``, a pair of steps each.

    Rows are what was tried in the most steps; cells are None where it was not tried. Steps are put together where there
    are more than `most_columns`.
    """
    files = _files(run, "rollouts")
    if not files:
        return {"rows": [], "columns": [], "in_all": 0}
    steps = [_step(file) for file in files]
    size = -(-len(steps) // most_columns)
    columns = [(steps[i], steps[min(i + size, len(steps)) - 1]) for i in range(0, len(steps), size)]
    column_of = {step: i // size for i, step in enumerate(steps)}
    key = "task_key" if by == "task" else "coalesce(nullif(domain, ''), '(none)')"
    found = _ask(
        f"SELECT {key} AS key, first(prompt) AS prompt, step, count(*) FILTER (score_status = 'ok') AS ok, "
        f"count(*) FILTER (score_status <> 'error') AS judged FROM {_tables(files)} "
        "WHERE score_status IS NOT NULL GROUP BY ALL ORDER BY ALL"
    )
    rows: dict[str, Row] = {}
    for entry in found:
        row = rows.setdefault(entry["key"], {"key": entry["key"], "prompt": entry["prompt"], "counts": {}})
        right, judged = row["counts"].get(column_of[entry["step"]], (0, 0))
        row["counts"][column_of[entry["step"]]] = (right + entry["ok"], judged + entry["judged"])
    chosen = sorted(rows.values(), key=lambda row: (-len(row["counts"]), row["key"]))[:most_rows]
    for row in chosen:
        counts = row.pop("counts")
        shares = [counts.get(i, (0, 0)) for i in range(len(columns))]
        row["cells"] = [{"share": ok / judged, "judged": judged} if judged else None for ok, judged in shares]
    return {"rows": chosen, "columns": columns, "in_all": len(rows)}


def answers(run: Path, step: int, name: str) -> dict[str, Row]:
    """The greedy answer to every held-out task in one evaluation, by task key."""
    files = _files(run, "evals", step, step)
    if not files:
        return {}
    columns = ", ".join(JUDGED)
    found = _ask(f"SELECT {columns} FROM {_tables(files)} WHERE evaluation = ? AND sample = 0", [name])
    return {row["task_key"]: row for row in found}


def history(run: Path, task: str) -> tuple[list[Row], list[Row]]:
    """All that was ever answered to one task: attempts in training by step, and greedy held-out answers."""
    columns = ", ".join((*ATTEMPT, "len(token_ids) AS num_tokens"))
    tried = _of_task(_files(run, "rollouts"), columns, task, "step, group_index, sample")
    columns = ", ".join(("step", "evaluation", "sample", *JUDGED))
    answered = _of_task(_files(run, "evals"), columns, task, "step")
    return tried, [row for row in answered if row["sample"] == 0]


def _of_task(files: Sequence[Path], columns: str, task: str, order: str) -> list[Row]:
    if not files:
        return []
    return _ask(f"SELECT {columns} FROM {_tables(files)} WHERE task_key = ? ORDER BY {order}", [task])


def _condition(wanted: Wanted) -> tuple[str, list[object]]:
    """SQL, and the values of its question marks."""
    parts: list[str] = ["true"]
    values: list[object] = []
    if wanted.text:
        parts.append(f"regexp_matches({wanted.inside}, ?)")
        values.append(wanted.text)
    if wanted.status == "none":
        parts.append("score_status IS NULL")
    for column, value in (
        ("score_status", wanted.status if wanted.status != "none" else ""),
        ("stop_reason", wanted.stop),
        ("stage", wanted.stage),
        ("task_key", wanted.task),
    ):
        if value:
            parts.append(f"{column} = ?")
            values.append(value)
    if wanted.kept:
        parts.append(f"dropped_reason IS {'NOT ' if wanted.kept == 'dropped' else ''}NULL")
    return " AND ".join(parts), values


def _files(run: Path, kind: str, first: int = 0, last: int | None = None) -> list[Path]:
    """The tables of some steps, by step."""
    files = sorted((run / kind).glob("step_*.parquet"), key=_step)
    return [file for file in files if first <= _step(file) and (last is None or _step(file) <= last)]


def _step(file: Path) -> int:
    return int(file.stem.removeprefix("step_"))


def _tables(files: Sequence[Path]) -> str:
    """What stands behind FROM. Files of different steps may have columns of their own."""
    return f"read_parquet([{', '.join(map(quoted, files))}], union_by_name = true)"


def _ask(question: str, values: Sequence[object] = ()) -> list[Row]:
    """Rows as dicts. Raises `UserError` for a regular expression that is none, `RunFailed` for tables that cannot be
    read: damaged ones, and those of a version that recorded other columns.
    """
    import duckdb

    with new_connection() as connection:
        try:
            result = connection.execute(question, list(values))
            names = [column[0] for column in result.description]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]
        except duckdb.Error as error:
            if isinstance(error, duckdb.InvalidInputException) and "regexp_matches" in question:
                raise UserError(f"not a regular expression as RE2 knows them: {error}") from None
            raise RunFailed(f"the record of this run cannot be read: {error}") from error
