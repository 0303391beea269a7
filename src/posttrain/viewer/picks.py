"""SQL queries about the choice of tasks and about pairs, over the index of a run.

A group is one choice of a task: its pass rate is the share of its scored rollouts that are correct. The arm of a choice
is the reason that the curriculum recorded for it, or the domain of the task where reasons are as many as tasks.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

from posttrain.viewer.database import Row, query
from posttrain.viewer.index import Source, union

MOST_ARMS: Final = 24
MOST_COLUMNS: Final = 30
BINS: Final = 8
"""Groups of choices by weight."""
ORDERS: Final = {
    "visits": ("chosen most often", "visits DESC, last DESC"),
    "last": ("chosen last", "last DESC, key"),
    "low": ("least solved", "solved, visits DESC"),
    "high": ("most solved", "solved DESC, visits DESC"),
}
"""Orders of the table of tasks: title and SQL."""

_CHOSEN = (
    "chosen AS (SELECT step, group_index, any_value(task_key) AS key, any_value(prompt) AS prompt, "
    "coalesce(nullif(any_value(domain), ''), '(none)') AS domain, any_value(reason) AS reason, "
    "any_value(weight) AS weight, any_value(lineage) AS lineage, avg(num_tokens) AS tokens, "
    "count(*) FILTER (score_status = 'ok') AS ok, count(*) FILTER (score_status <> 'error') AS scored, "
    "count(*) FILTER (score_status = 'ok') / nullif(count(*) FILTER (score_status <> 'error'), 0) AS solved "
    "FROM {rollouts} WHERE score_status IS NOT NULL AND side IS NULL GROUP BY step, group_index)"
)


def _query(sources: Sequence[Source], rest: str, values: Sequence[object] = ()) -> list[Row]:
    """A query over `chosen`, one row for each group."""
    return query(f"WITH {_CHOSEN.format(rollouts=union(sources))}{rest}", values) if sources else []


def totals(sources: Sequence[Source]) -> Row:
    """Number of choices, of distinct tasks and of reasons, and every step with a choice."""
    [found] = _query(
        sources,
        " SELECT count(*) AS choices, count(DISTINCT key) AS tasks, count(DISTINCT reason) AS reasons, "
        "count(weight) AS weights, list_sort(list(DISTINCT step)) AS steps FROM chosen",
    ) or [{"choices": 0, "tasks": 0, "reasons": 0, "weights": 0, "steps": []}]
    return {**found, "steps": found["steps"] or []}


def columns_of(steps: Sequence[int], most: int = MOST_COLUMNS) -> list[tuple[int, int]]:
    """First and last step of each column, neighbouring steps merged where there are more than `most`."""
    size = max(1, -(-len(steps) // most))
    return [(steps[i], steps[min(i + size, len(steps)) - 1]) for i in range(0, len(steps), size)]


def arms(sources: Sequence[Source], columns: Sequence[tuple[int, int]], arm: str) -> list[Row]:
    """By arm: choices, share, pass rate and length in all, and share and pass rate in each column."""
    found = _query(
        sources,
        f", placed AS (SELECT coalesce({arm}, '(none)') AS arm, {_place(columns)} AS place, count(*) AS choices, "
        "sum(ok) AS ok, sum(scored) AS scored, sum(tokens) AS tokens FROM chosen GROUP BY ALL), "
        "kept AS (SELECT arm, sum(choices) AS times, count(*) OVER () AS in_all FROM placed GROUP BY arm "
        f"ORDER BY times DESC, arm LIMIT {MOST_ARMS:d}) "
        "SELECT arm, place, choices, ok, scored, tokens, in_all, "
        "(SELECT sum(choices) FROM placed AS p WHERE p.place = placed.place) AS total "
        "FROM placed JOIN kept USING (arm) ORDER BY times DESC, arm, place",
    )
    every: dict[int, int] = {row["place"]: row["total"] for row in found}
    rows: dict[str, Row] = {}
    for own in found:
        row = rows.setdefault(own["arm"], {"arm": own["arm"], "in_all": own["in_all"], "counts": {}})
        row["counts"][own["place"] - 1] = own
    for row in rows.values():
        counts = row.pop("counts")
        choices, ok, scored, tokens = (
            sum(c[n] for c in counts.values()) for n in ("choices", "ok", "scored", "tokens")
        )
        row |= {"choices": choices, "share": choices / sum(every.values()), "tokens": tokens / choices}
        row["solved"] = ok / scored if scored else None
        row["shares"] = [
            (counts[i]["choices"] if i in counts else 0) / every[i + 1] if i + 1 in every else None
            for i in range(len(columns))
        ]
        row["rates"] = [
            counts[i]["ok"] / counts[i]["scored"] if i in counts and counts[i]["scored"] else None
            for i in range(len(columns))
        ]
    return list(rows.values())


def difficulty(sources: Sequence[Source], columns: Sequence[tuple[int, int]]) -> list[Row]:
    """By column, 10, 50 and 90 % quantiles of the pass rate: of its choices, and of all tasks that were seen by then.

    That of a task is its newest one.
    """
    ends = ", ".join(f"({place}, {last})" for place, (_, last) in enumerate(columns))
    cut = "quantile_cont(solved, [0.1, 0.5, 0.9])"
    return _query(
        sources,
        f", ends AS (SELECT * FROM (VALUES {ends}) AS t(place, last)), "
        f"own AS (SELECT {_place(columns)} - 1 AS place, {cut} AS chosen FROM chosen WHERE solved IS NOT NULL "
        "GROUP BY 1), "
        "newest AS (SELECT place, key, arg_max(solved, step) AS solved FROM chosen JOIN ends ON step <= last "
        f"WHERE solved IS NOT NULL GROUP BY ALL), seen AS (SELECT place, {cut} AS seen FROM newest GROUP BY place) "
        "SELECT place, last, own.chosen AS chosen, seen FROM ends JOIN own USING (place) JOIN seen USING (place) "
        "ORDER BY place",
    )


def predictions(sources: Sequence[Source]) -> list[Row]:
    """Choices in bins of about as many by weight: mean weight, pass rate, and number."""
    return _query(
        sources,
        f", binned AS (SELECT weight, solved, ntile({BINS:d}) OVER (ORDER BY weight, step, group_index) AS bin "
        "FROM chosen WHERE weight IS NOT NULL AND solved IS NOT NULL) "
        "SELECT bin, min(weight) AS low, max(weight) AS high, avg(weight) AS weight, avg(solved) AS solved, "
        "count(*) AS choices FROM binned GROUP BY bin ORDER BY bin",
    )


def tasks(sources: Sequence[Source], order: str, *, limit: int, offset: int) -> list[Row]:
    """Chosen tasks: visits, pass rate over all and at the last one, and its weight and reason."""
    return _query(
        sources,
        " SELECT key, any_value(prompt) AS prompt, count(*) AS visits, max(step) AS last, "
        "sum(ok) / nullif(sum(scored), 0) AS solved, arg_max(solved, step) AS newest, arg_max(weight, step) AS weight, "
        f"arg_max(reason, step) AS reason FROM chosen GROUP BY key ORDER BY {ORDERS[order][1]}, key "
        f"LIMIT {limit:d} OFFSET {offset:d}",
    )


def born(sources: Sequence[Source], *, most: int) -> tuple[list[Row], int]:
    """Tasks that were made in the run and then chosen, in order of birth, and how many there are in all."""
    found = _query(
        sources,
        " SELECT key, any_value(prompt) AS prompt, any_value(lineage) AS lineage, count(*) AS visits, "
        "sum(ok) / nullif(sum(scored), 0) AS solved, min(step) AS first, count(*) OVER () AS in_all "
        f"FROM chosen WHERE lineage IS NOT NULL GROUP BY key ORDER BY first, key LIMIT {most:d}",
    )
    return found, found[0]["in_all"] if found else 0


def prompts(sources: Sequence[Source], keys: Sequence[str]) -> dict[str, str]:
    """The prompts of some tasks that were chosen."""
    found = _query(sources, " SELECT DISTINCT key, prompt FROM chosen WHERE list_contains(?, key)", [list(keys)])
    return {row["key"]: row["prompt"] for row in found}


def hints(sources: Sequence[Source]) -> list[Row]:
    """By share of the solution in the prompt: rollouts, pass rate, and the first and last step."""
    if not sources:
        return []
    return query(
        "SELECT round(hint, 2) AS share, count(*) AS rollouts, min(step) AS first, max(step) AS last, "
        "count(*) FILTER (score_status = 'ok') / nullif(count(*) FILTER (score_status <> 'error'), 0) AS solved "
        f"FROM {union(sources)} WHERE hint IS NOT NULL AND score_status IS NOT NULL GROUP BY 1 ORDER BY 1"
    )


def pairs(sources: Sequence[Source], *, limit: int, offset: int) -> list[Row]:
    """The pairs that were learned from, in order: prompt, both texts, rule and margin."""
    return _pairs(sources, f"SELECT * FROM pairs ORDER BY step, group_index LIMIT {limit:d} OFFSET {offset:d}")


def rules(sources: Sequence[Source]) -> list[Row]:
    """By stage and rule: number of pairs, of distinct ones and of tasks, and quantiles of the margin."""
    return _pairs(
        sources,
        "SELECT stage, rule, count(*) AS pairs, count(DISTINCT (key, chosen, rejected)) AS different, "
        "count(DISTINCT key) AS tasks, quantile_cont(margin, [0.1, 0.5, 0.9]) AS margin, min(step) AS first "
        "FROM pairs GROUP BY stage, rule ORDER BY first, pairs DESC",
    )


def _pairs(sources: Sequence[Source], rest: str) -> list[Row]:
    if not sources:
        return []
    one: Any = "any_value(completion) FILTER (side = '{0}') AS {0}".format
    return query(
        "WITH pairs AS (SELECT step, group_index, any_value(stage) AS stage, any_value(task_key) AS key, "
        f"any_value(prompt) AS prompt, {one('chosen')}, {one('rejected')}, any_value(rule) AS rule, "
        f"any_value(margin) AS margin FROM {union(sources)} WHERE side IS NOT NULL GROUP BY step, group_index) {rest}"
    )


def _place(columns: Sequence[tuple[int, int]]) -> str:
    """The number of the column of a step, from 1."""
    if len(columns) > 1 and len({b - a for (a, _), (b, _) in pairwise(columns)}) == 1:
        return f"(step - {columns[0][0]}) // {columns[1][0] - columns[0][0]} + 1"
    return " + ".join(f"(step >= {first})::INTEGER" for first, _ in columns)
