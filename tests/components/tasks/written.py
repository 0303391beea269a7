"""Data files that tests write."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.components.tasks.files import Files
from posttrain.types import Task

Rows = Sequence[Mapping[str, Any]]


def jsonl(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def delimited(path: Path, rows: Rows, delimiter: str = ",") -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def parquet(path: Path, rows: Rows) -> Path:
    import duckdb

    source = jsonl(path.with_suffix(".for-parquet.jsonl"), rows)
    with duckdb.connect() as connection:
        found = connection.read_json(str(source), format="newline_delimited")
        found.write_parquet(str(path))
    source.unlink()
    return path


def load(folder: Path, *rows: Mapping[str, Any], **settings: Any) -> list[Task]:
    """Tasks of rows that lie in a file of JSON lines."""
    return list(Files(path=str(jsonl(folder / "rows.jsonl", rows)), **settings).load())


def load_one(folder: Path, row: Mapping[str, Any], **settings: Any) -> Task:
    [task] = load(folder, row, **settings)
    return task
