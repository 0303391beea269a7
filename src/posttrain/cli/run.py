"""Train: run a recipe from start to end.

RECIPE is the name of a recipe, FILE.py:FUNCTION, a YAML file, or the folder of a run. CHANGES are path=value pairs.
Ctrl-C finishes the step, saves, and prints how to resume; so do --most-hours and --most-cost.

    posttrain run quickstart
    posttrain run grpo model=pebble tasks=mine.jsonl reward=./mine.py:score steps=20
    posttrain run grpo rollout.n=16 objective.clip_high=0.28 --dry-run
    posttrain run grpo model=my-model tasks=mine.jsonl --most-cost 10 --price 2.5
    posttrain run tulu3 --sets sums=a.jsonl,words=b.jsonl
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli._completion import complete_changes, complete_recipe
from posttrain.cli._output import limited, print_json, trusting, verb
from posttrain.errors.foreign import printable

if TYPE_CHECKING:
    from posttrain.recipes.tree import Recipe


@verb
@trusting
@click.argument("recipe", shell_complete=complete_recipe)
@click.argument("changes", nargs=-1, shell_complete=complete_changes)
@click.option(
    "--runs", "root", default="runs", show_default=True, type=click.Path(path_type=Path), help="Folder of runs."
)
@click.option(
    "--sets",
    metavar="NAME=TASKS,...",
    help="Test sets that are answered before and after every stage, each by its name: sums=a.jsonl,words=b.jsonl.",
)
@limited
@click.option("--dry-run", is_flag=True, help="Check data and model, draw one batch, print what would be done.")
def command(
    recipe: str,
    changes: tuple[str, ...],
    root: Path,
    sets: str | None,
    dry_run: bool,
    as_json: bool,
    **limits: float | None,
) -> None:
    """Resolves, then trains or previews."""
    from posttrain.recipes.files import find_recipe
    from posttrain.recipes.overrides import repeats
    from posttrain.runs.limits import time_limit

    limit = time_limit(**limits)
    changes = (*(changes_of_sets(sets, changes) if sets is not None else ()), *changes)
    resolved = find_recipe(recipe, changes)
    warnings = repeats(resolved, changes)
    if dry_run:
        _preview(resolved, warnings, as_json)
        return
    from posttrain.runs.launch import start
    from posttrain.runs.live import LiveView

    folder, summary = start(resolved, root, LiveView(json=as_json), warnings, limit=limit)
    finish(folder, summary, as_json)


TASKS_OF_A_SET = 200
"""Most tasks that are taken of each named set, where evaluation.holdout does not give the number of all."""


def changes_of_sets(text: str, changes: Sequence[str]) -> list[str]:
    """The changes that make named test sets the held-out tasks. Raises `UserError` for a set without a name or tasks.

    The domain of a held-out task is the name of its set, so that every evaluation has the accuracy of each. As many
    tasks are taken of every set, as far as it has them: a small set is not crowded out by a large one.
    """
    import json

    from posttrain.errors import UserError

    sources: dict[str, str] = {}
    for part in text.split(","):
        name, _, source = part.partition("=")
        if not name or not source:
            raise UserError(
                f"--sets {text}: '{part}' is no set; write NAME=TASKS,NAME=TASKS: sums=a.jsonl,words=b.jsonl"
            )
        if name in sources:
            raise UserError(f"--sets {text}: two sets are named '{name}'; give each a name of its own")
        sources[name] = source
    taken = [change for change in changes if change.startswith("evaluation.tasks")]
    if taken:
        raise UserError(f"--sets gives the held-out tasks, and so does {taken[0]}; leave one out")
    given = [change.partition("=")[2] for change in changes if change.startswith(("evaluation.holdout=", "holdout="))]
    total = int(given[-1]) if given and given[-1].isdecimal() else TASKS_OF_A_SET * len(sources)
    mixed = {"kind": "mixture", "sources": sources, "domains": "source", "most": max(-(-total // len(sources)), 1)}
    held_out = [f"evaluation.tasks={json.dumps(mixed)}"]
    return held_out if given else [*held_out, f"evaluation.holdout={total}"]


def finish(folder: Path, summary: Mapping[str, Any], as_json: bool) -> None:
    """Prints the folders and the summary of a run that has ended."""
    if as_json:
        print_json(summary)
        return
    command = shlex.join(["posttrain", "view", str(folder)])
    click.echo(f"model   {folder / 'model'}\nreport  {folder / 'report.html'}\nrecord  {folder}\nview    {command}")
    click.secho(summary["summary_line"], bold=True)


def _preview(resolved: "Recipe", warnings: Sequence[str], as_json: bool) -> None:
    """Prints what a run would do, each part when it is known: a large model takes minutes to draw a batch.

    Exits with 1 and an error if rollouts of the drawn batch could not be scored.
    """
    from posttrain.runs.preview import sections

    found = {}
    for heading, lines in sections(resolved, warnings):
        found[heading] = lines
        if as_json:
            continue
        click.secho(heading, bold=True, fg={"warnings": "yellow", "errors": "red"}.get(heading))
        for line in lines:
            click.echo(f"  {printable(line)}")
    if as_json:
        print_json(found)
    if "errors" in found:
        first, *others = found["errors"]
        click.secho("error: ", fg="red", bold=True, nl=False, err=True)
        click.echo(printable(first) + (f" ({len(others)} more are above)" if others else ""), err=True)
        raise click.exceptions.Exit(1)
