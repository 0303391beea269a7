"""Show what each stage of a run gained and forgot, on each set of held-out tasks.

RUNS are the folders of a run, or of several of one recipe with different seeds. A set is a domain of the held-out
tasks; `posttrain run --sets` names sets of one's own. A change is paired: the same tasks before and after the stage,
with the number of tasks that were gained and lost.

    posttrain run tulu3 --sets sums=a.jsonl,words=b.jsonl
    posttrain stages runs/tulu3-1
    posttrain stages comparisons/tulu3/runs/* --json
"""

from pathlib import Path
from typing import Any

import click

from posttrain.cli._completion import complete_runs
from posttrain.cli._output import print_json, print_table, reading_verb


@reading_verb
@click.argument(
    "runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUNS...", shell_complete=complete_runs
)
def command(runs: tuple[Path, ...], as_json: bool) -> None:
    """Reads, compares, prints."""
    from posttrain.runs.by_stage import stages_of

    found = stages_of(runs)
    if as_json:
        print_json(found)
        return
    stages = found["stages"]
    rows = [[name, *(_cell(stage["sets"][name]) for stage in stages)] for name in stages[0]["sets"]]
    print_table(["set", *(stage["name"] for stage in stages)], rows)
    click.echo("accuracy, change by the stage in points with its 95 % interval, tasks gained and lost by it")


def _cell(found: dict[str, Any]) -> str:
    """Accuracy, change and tasks that changed: ``87.5 %, +25.0 [+13.1, +36.2] (+22 -2)``."""
    change = found.get("change")
    accuracy = f"{100 * found['accuracy']:.1f} %"
    if change is None:
        return accuracy
    low, high = change["interval"]
    moved = f"+{change['gained']:.3g} -{change['lost']:.3g}"
    return f"{accuracy}, {100 * change['value']:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}] ({moved})"
