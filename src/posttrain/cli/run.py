"""Train: run a recipe from start to end.

RECIPE is the name of a recipe, FILE.py:FUNCTION, a YAML file, or the folder of a run. CHANGES are path=value pairs.
Ctrl-C finishes the step, saves, and says how to go on.

    posttrain run quickstart
    posttrain run grpo model=pebble tasks=mine.jsonl reward=./mine.py:score steps=20
    posttrain run grpo rollout.n=16 objective.clip_high=0.28 --dry-run
"""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli._output import print_json, verb

if TYPE_CHECKING:
    from posttrain.recipes.tree import Recipe


@verb
@click.argument("recipe")
@click.argument("changes", nargs=-1)
@click.option(
    "--runs", "root", default="runs", show_default=True, type=click.Path(path_type=Path), help="Where runs go."
)
@click.option("--dry-run", is_flag=True, help="Check data and model, draw one batch, say what would happen.")
def command(recipe: str, changes: tuple[str, ...], root: Path, dry_run: bool, as_json: bool) -> None:
    """Resolve, then train or preview."""
    from posttrain.recipes.files import find_recipe

    resolved = find_recipe(recipe, changes)
    if dry_run:
        _preview(resolved, as_json)
        return
    from posttrain.runs.launch import start
    from posttrain.runs.live import LiveView

    folder, summary = start(resolved, root, LiveView(json=as_json))
    finish(folder, summary, as_json)


def finish(folder: Path, summary: Mapping[str, Any], as_json: bool) -> None:
    """Print what a run that has ended leaves behind."""
    if as_json:
        print_json(summary)
        return
    look = shlex.join(["posttrain", "view", str(folder)])
    click.echo(f"model   {folder / 'model'}\nreport  {folder / 'report.html'}\nrecord  {folder}\nlook    {look}")
    click.secho(summary["summary_line"], bold=True)


def _preview(resolved: "Recipe", as_json: bool) -> None:
    """Print what a run would do."""
    from posttrain.runs.preview import preview

    found = preview(resolved)
    if as_json:
        print_json(found)
        return
    for heading, lines in found.items():
        click.secho(heading, bold=True)
        for line in lines:
            click.echo(f"  {line}")
