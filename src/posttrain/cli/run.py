"""Train: run a recipe from start to end.

RECIPE is the name of a recipe, FILE.py:FUNCTION, a YAML file, or the folder of a run. CHANGES are path=value pairs.
Ctrl-C finishes the step, saves, and prints how to resume; so do --most-hours and --most-cost.

    posttrain run quickstart
    posttrain run grpo model=pebble tasks=mine.jsonl reward=./mine.py:score steps=20
    posttrain run grpo rollout.n=16 objective.clip_high=0.28 --dry-run
    posttrain run grpo model=my-model tasks=mine.jsonl --most-cost 10 --price 2.5
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
@limited
@click.option("--dry-run", is_flag=True, help="Check data and model, draw one batch, print what would be done.")
def command(
    recipe: str, changes: tuple[str, ...], root: Path, dry_run: bool, as_json: bool, **limits: float | None
) -> None:
    """Resolves, then trains or previews."""
    from posttrain.recipes.files import find_recipe
    from posttrain.recipes.overrides import repeats
    from posttrain.runs.limits import time_limit

    limit = time_limit(**limits)
    resolved = find_recipe(recipe, changes)
    warnings = repeats(resolved, changes)
    if dry_run:
        _preview(resolved, warnings, as_json)
        return
    from posttrain.runs.launch import start
    from posttrain.runs.live import LiveView

    folder, summary = start(resolved, root, LiveView(json=as_json), warnings, limit=limit)
    finish(folder, summary, as_json)


def finish(folder: Path, summary: Mapping[str, Any], as_json: bool) -> None:
    """Prints the folders and the summary of a run that has ended."""
    if as_json:
        print_json(summary)
        return
    command = shlex.join(["posttrain", "view", str(folder)])
    click.echo(f"model   {folder / 'model'}\nreport  {folder / 'report.html'}\nrecord  {folder}\nview    {command}")
    click.secho(summary["summary_line"], bold=True)


def _preview(resolved: "Recipe", warnings: Sequence[str], as_json: bool) -> None:
    """Prints what a run would do; exits with 1 if rollouts of the drawn batch could not be scored."""
    from posttrain.runs.preview import preview

    found = preview(resolved, warnings)
    if as_json:
        print_json(found)
    for heading, lines in ({} if as_json else found).items():
        click.secho(heading, bold=True, fg={"warnings": "yellow", "errors": "red"}.get(heading))
        for line in lines:
            click.echo(f"  {printable(line)}")
    if "errors" in found:
        raise click.exceptions.Exit(1)
