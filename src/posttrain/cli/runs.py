"""List and remove runs.

    posttrain runs ls
    posttrain runs ls experiments --json
    posttrain runs rm runs/grpo-1 runs/grpo-2

Both take --json. Sizes are those on the disk.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from posttrain.cli._completion import complete_runs
from posttrain.cli._output import print_json, print_table

json_flag = click.option("--json", "as_json", is_flag=True, help="Print one JSON value, for programs.")


@click.group(help=__doc__.replace("\n\n    posttrain", "\n\n\b\n    posttrain", 1))
def command() -> None:
    """Chooses one of both."""


@command.command("ls")
@click.argument("places", nargs=-1, type=click.Path(path_type=Path))
@json_flag
def ls(places: tuple[Path, ...], as_json: bool) -> None:
    """List the runs in PLACES (runs/ by default), the most recently written first.

    \b
    state   finished, running, stopped (interrupted, or by an alarm) or failed; posttrain resume continues
            the last two
    score   accuracy on the held-out tasks, first and last
    age     time since something was recorded
    """  # noqa: D301
    from posttrain.viewer.library import Library

    found = [_about(folder) for folder in Library(places or (Path("runs"),)).runs().values()]
    if as_json:
        print_json(found)
        return
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "run": lambda run: str(run["run"]),
        "state": lambda run: str(run["state"]),
        "steps": lambda run: "" if run["steps"] is None else f"{run['steps']:,}",
        "score": _score,
        "size": lambda run: _size(run["bytes"]),
        "age": lambda run: _age(run["age_seconds"]),
    }
    rows = [[read(run) for read in columns.values()] for run in found]
    print_table(list(columns), rows, whole=[name for name in columns if name != "run"])
    for run in found:
        if run["problem"]:
            click.secho(f"{run['run']}: {run['problem']}", fg="yellow", err=True)


@command.command("rm")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.option("--yes", is_flag=True, help="Remove without a question.")
@json_flag
def rm(runs: tuple[Path, ...], yes: bool, as_json: bool) -> None:
    """Remove the folders RUNS with everything in them: models, checkpoints, records.

    Only folders of runs are removed, no links, and no run in progress. If one of them cannot be removed, none is.
    """
    from posttrain.errors import UserError
    from posttrain.runs.inventory import bytes_of, check_removable, remove

    for folder in runs:
        check_removable(folder)
    sizes = {folder: bytes_of(folder) for folder in runs}
    for folder, size in sizes.items():
        click.echo(f"{folder}  {_size(size)}", err=True)
    total = _size(sum(sizes.values()))
    if not yes and not sys.stdin.isatty():
        raise UserError("nobody can be asked here (no terminal); --yes removes without a question")
    if not yes and not click.confirm(f"Remove {_runs(len(sizes))} and free {total}?", default=False, err=True):
        click.get_current_context().exit(130)
    for folder in sizes:
        remove(folder)
    if as_json:
        print_json({"removed": [str(folder) for folder in sizes], "bytes": sum(sizes.values())})
    else:
        click.echo(f"removed {_runs(len(sizes))}, {total} freed")


def _about(folder: Path) -> dict[str, Any]:
    """What is known of a run."""
    from posttrain.runs.inventory import bytes_of
    from posttrain.viewer.library import last_change
    from posttrain.viewer.listing import line

    row = line(folder.name, folder)
    here = Path.cwd()
    return {
        "run": str(folder.relative_to(here) if folder.is_relative_to(here) else folder),
        "state": "damaged" if row["problem"] else row["state"],
        "why": row["why"],
        "recipe": row["recipe"],
        "steps": row["steps"],
        "accuracy_before": row["accuracy_before"],
        "accuracy_after": row["accuracy_after"],
        "bytes": bytes_of(folder),
        "started": row["started"],
        "age_seconds": max(0.0, time.time() - last_change(folder)),
        "problem": row["problem"],
    }


def _score(run: dict[str, Any]) -> str:
    """``19.0 to 79.5 %``."""
    before, after = run["accuracy_before"], run["accuracy_after"]
    measured = [f"{100 * value:.1f}" for value in (before, after) if value is not None]
    return f"{' to '.join(measured)} %" if measured else ""


def _size(count: int) -> str:
    """``1.2 GiB``."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20)):
        if count >= factor:
            return f"{count / factor:,.1f} {unit}"
    return f"{count / 2**10:,.0f} KiB"


def _age(seconds: float) -> str:
    """``5 min``, ``3 h``, ``12 days``."""
    for unit, length in (("days", 172_800), ("h", 7_200), ("min", 120)):
        if seconds >= length:
            return f"{seconds / {'days': 86_400, 'h': 3_600, 'min': 60}[unit]:.0f} {unit}"
    return f"{seconds:.0f} s"


def _runs(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"
