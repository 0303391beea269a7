"""Power cuts: what they leave of a run, and what it costs that they leave enough.

    python -m benchmarks.power states                 a thousand modelled cuts, each resumed
    python -m benchmarks.power cuts                   real ones: file systems on loop devices, shut down
    python -m benchmarks.power syncs                  syncs a step, and the time that they take
    python -m benchmarks.power cuts --against TREE    the same of the code in another checkout; syncs takes several
    python -m benchmarks.power cuts --write docs/measured/trust/power.json

Each prints a table, and adds it to the tables of a file. Exit code 1 when a run was not resumed to the same end, or
something saved was lost. What is not covered: disks that lie about having written, and the file that a loop device lies
in, which no cut reaches.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import posttrain
from benchmarks._faulty import Tally, Workshop
from benchmarks._power_cuts import LEAVES, SHORT, sweep
from benchmarks._real_cuts import FILE_SYSTEMS, real_cuts
from benchmarks._syncs import table_of_syncs

HERE = Path(__file__).resolve().parents[1]
OURS = "this code"
COUNTS = ("tried", "equal", "clear stop", "wrong")
Table = tuple[Sequence[str], Sequence[Sequence[Any]]]
"""Columns and rows."""


def table_of(tallies: Sequence[Tally], of: str) -> Table:
    """What was tried, with a last row for all of it."""
    total = Tally("all")
    for tally in tallies:
        total.tried, total.same = total.tried + tally.tried, total.same + tally.same
        total.stopped, total.wrong = total.stopped + tally.stopped, total.wrong + tally.wrong
    rows = [
        (tally.fault.removeprefix(LEAVES), tally.tried, tally.same, tally.stopped, len(tally.wrong), remark(tally))
        for tally in [*tallies, total]
    ]
    return (of, *COUNTS, "remark"), rows


def remark(tally: Tally) -> str:
    """What kinds of wrong there were."""
    kinds = Counter(
        "lost" if "lost: " in p else "different" if "ended with" not in p else "not resumed" for p in tally.wrong
    )
    return ", ".join([tally.note] * bool(tally.note) + [f"{number} {kind}" for kind, number in kinds.most_common()])


def print_table(table: Table) -> None:
    """A table of Markdown."""
    columns, rows = table
    for row in (columns, ["---"] * len(columns), *rows):
        print(f"| {' | '.join(map(str, row))} |")


def write_table(path: Path, caption: str, table: Table) -> None:
    """Put a table into a file of measurements, in place of the one with the same caption."""
    part = json.loads(path.read_text()) if path.exists() else {"tables": []}
    part["title"], part["command"] = (
        "Power cuts",
        "python -m benchmarks.power states|cuts|syncs [--against TREE] --write docs/measured/trust/power.json",
    )
    columns, rows = table
    tables = {kept["caption"]: kept for kept in part["tables"]}
    tables[caption] = {"caption": caption, "columns": list(columns), "rows": [list(row) for row in rows]}
    part["tables"] = [tables[caption] for caption in sorted(tables)]
    path.write_text(json.dumps(part, indent=1) + "\n")


def main() -> int:
    """One of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("states", "cuts", "syncs"))
    parser.add_argument("--number", type=int, help="States (1,000), cuts of each file system (24), or runs (3).")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, help="Where to work: one in memory makes `states` faster.")
    parser.add_argument("--against", type=Path, action="append", default=[], help="Checkouts whose code is tried.")
    parser.add_argument("--write", type=Path, help="The JSON file to write to.")
    given = parser.parse_args()
    if given.what == "syncs":
        return measure_syncs(given)
    tree = given.against[-1].resolve() if given.against else HERE
    run_from(tree)
    table, wrong = try_cuts(given, name_of(tree))
    print_table(table)
    for problem in wrong:
        print(f"wrong: {problem}")
    return int(bool(wrong))


def run_from(tree: Path) -> None:
    """Begin anew with the code of a tree, unless it is this process's."""
    if not Path(posttrain.__file__).is_relative_to(tree):
        path = os.pathsep.join([str(tree / "src"), str(HERE)])
        environment = {**os.environ, "PYTHONPATH": path}
        os.execve(sys.executable, [sys.executable, "-m", "benchmarks.power", *sys.argv[1:]], environment)


def try_cuts(given: argparse.Namespace, code: str) -> tuple[Table, Sequence[str]]:
    """The table of modelled or real cuts, and what was wrong; the file is written again and again meanwhile."""
    modelled = given.what == "states"
    caption = f"{'Modelled' if modelled else 'Real'} cuts, {code}."
    write = given.write and given.write.absolute()
    tallies: list[Tally] = []

    def keep(tallies: Sequence[Tally]) -> Table:
        table = table_of(tallies, "a power cut leaves" if modelled else "a power cut of")
        if write is not None:
            write_table(write, caption, table)
        return table

    with tempfile.TemporaryDirectory(prefix="power-", dir=given.folder) as folder:
        shop = Workshop(Path(folder), given.seed, *SHORT)
        if modelled:
            tallies += sweep(shop, given.number or 1000, given.seed, given.workers, keep)
        for system in FILE_SYSTEMS if not modelled else ():
            for tally in real_cuts(shop, system, given.number or 24):
                tallies.append(tally)
                keep(tallies)
        os.chdir("/")
    return keep(tallies), [problem for tally in tallies for problem in tally.wrong]


def measure_syncs(given: argparse.Namespace) -> int:
    """Print the table of syncs, of the code in another checkout too."""
    trees = {name_of(tree): tree.resolve() for tree in (HERE, *given.against)}
    with tempfile.TemporaryDirectory(prefix="power-", dir=given.folder) as folder:
        table = table_of_syncs(trees, given.number or 3, Path(folder))
    print_table(table)
    if given.write is not None:
        write_table(given.write, "Syncs of quickstart: medians over the steps of runs in turns.", table)
    return 0


def name_of(tree: Path) -> str:
    """What the code of a checkout is called in tables."""
    return OURS if tree == HERE else f"the code of commit {commit_of(tree)}"


def commit_of(tree: Path) -> str:
    """The commit that is checked out."""
    command = ["git", "-C", str(tree), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
