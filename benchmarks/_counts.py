"""Counts of clean outcomes by class, of this code and of an older one, in one table of docs/measured/trust."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import posttrain

Counts = Mapping[str, tuple[int, int]]
"""By class: cases tried, and clean ones."""
FIXED = ("tried", "clean")


def run_against(tree: Path, module: str) -> None:
    """Start this program again with the package of another checkout, unless it is that already."""
    source = (tree / "src").resolve()
    if Path(posttrain.__file__).resolve().is_relative_to(source):
        return
    if not source.is_dir():
        raise SystemExit(f"{tree} is no checkout of this repository: it has no folder src")
    path = os.pathsep.join([str(source), str(Path(__file__).resolve().parents[1])])
    os.execve(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]], {**os.environ, "PYTHONPATH": path})


def commit(tree: Path) -> str:
    """The commit of a checkout."""
    asked = ["git", "-C", str(tree), "rev-parse", "--short=7", "HEAD"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def write_counts(
    output: Path,
    part: Mapping[str, Any],
    first: str,
    counts: Counts,
    before: Path | None,
    sizes: Mapping[str, int] | None = None,
) -> None:
    """Put the counts into the part's table beside those of the other code and of other classes.

    `sizes` are the cases of each class, where not all were tried; what is known of a class that had other cases goes.
    """
    sizes = sizes or {title: tried for title, (tried, _) in counts.items()}
    old = json.loads(output.read_text())["tables"][0] if output.is_file() else {"columns": [first, *FIXED], "rows": []}
    same = [row for row in old["rows"] if sizes.get(row[0]) == row[1]]
    clean: dict[str, Any] = {row[0]: row[2] for row in same if row[2] != ""}
    older = {row[0]: row[3] for row in same if len(row) > 3 and row[3] != ""}
    name = old["columns"][3] if older else ""
    found = {title: n for title, (_, n) in counts.items()}
    if before is None:
        clean |= found
    else:
        earlier, name = name, f"clean at {commit(before)}"
        older = (older if earlier == name else {}) | found
    rows = [[title, tried, clean.get(title, "")] for title, tried in sizes.items()]
    rows.append(["all", sum(sizes.values()), _total(clean, sizes)])
    if older:
        rows = [[*row, _total(older, sizes) if row[0] == "all" else older.get(row[0], "")] for row in rows]
    table = {"columns": [first, *FIXED, *([name] if older else [])], "rows": rows}
    output.write_text(json.dumps({**part, "tables": [table]}, indent=1) + "\n")


def _total(clean: Mapping[str, Any], sizes: Mapping[str, int]) -> int | str:
    return sum(clean[title] for title in sizes) if clean.keys() >= sizes.keys() else ""
