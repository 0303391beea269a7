"""Compare methods over several seeds, with paired intervals.

RECIPES are two or more, each a recipe, or one with its own changes in quotes. The others are compared with the first.
CHANGES are path=value pairs for all of them. Existing runs are not repeated: a stopped comparison continues, and more
seeds add runs. comparison.html in the folder has the curves, the differences and the costs.

    posttrain compare grpo dr_grpo --seeds 5 steps=40
    posttrain compare grpo "grpo rollout.n=16" --measure accuracy_after --measure reward:mean --jobs 2
    posttrain compare grpo "grpo 'reward={kind: match, wrong: 0.1}'" --budget 200000
    posttrain compare grpo sec setting=uneven_sums --measure tokens_to:accuracy=0.25
    posttrain compare grpo reinforce_ada --seeds 8 --measure rl/reward:reached0.6 --json

What a number of seeds can find, before any run:

    posttrain compare grpo dr_grpo --plan --std 0.025 --find 0.04
    posttrain compare grpo dr_grpo --plan --pilot comparisons/earlier
"""

from pathlib import Path
from typing import Any

import click

from posttrain.cli._completion import complete_recipe
from posttrain.cli._output import print_json, print_table, trusting, verb


@verb
@trusting
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPES... [CHANGES]...", shell_complete=complete_recipe)
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=1), help="Runs of each: seeds 0, 1, ...")
@click.option(
    "--measure",
    "measures",
    multiple=True,
    default=("accuracy_after",),
    show_default=True,
    help="A number of the summary, a metric (reward:mean, rl/reward:last10), evaluation.NAME. Repeatable.",
)
@click.option("--budget", type=click.IntRange(min=1), help="Sampled tokens after which every run ends.")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1), help="Runs at the same time.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder of the runs.")
@click.option("--plan", is_flag=True, help="Print what a number of seeds can find; run nothing.")
@click.option("--std", type=float, help="For --plan: std of a difference between two runs of one seed.")
@click.option(
    "--pilot", type=click.Path(path_type=Path, exists=True), help="For --plan: an earlier comparison's folder."
)
@click.option("--find", type=float, help="For --plan: a difference; prints the seeds that find it 4 times in 5.")
def command(
    recipes: tuple[str, ...],
    seeds: int,
    measures: tuple[str, ...],
    budget: int | None,
    jobs: int,
    out: Path | None,
    plan: bool,
    as_json: bool,
    **planned: Any,
) -> None:
    """Runs what is missing, then compares."""
    from posttrain.errors import UserError
    from posttrain.runs import comparison

    changes = [text for text in recipes if "=" in text.partition(" ")[0]]
    specs = [text for text in recipes if text not in changes]
    if len(specs) < 2:
        raise UserError(f"there must be two recipes or more to compare, got {len(specs)}: {' '.join(specs) or 'none'}")
    if plan:
        _plan(measures, len(specs) - 1, as_json, **planned)
        return
    if given := [f"--{name}" for name, value in planned.items() if value is not None]:
        raise UserError(f"{' and '.join(given)}: only a plan uses that; add --plan, which runs nothing")
    result = comparison.compare(
        specs,
        changes,
        seeds=seeds,
        measures=measures,
        out=out,
        jobs=jobs,
        budget=budget,
        report=lambda text: click.echo(text, err=True),
    )
    if as_json:
        print_json(result)
    else:
        _print(result)
    if failures := result["failures"]:
        where, why = next(iter(failures.items()))
        click.echo(f"{len(failures)} of {seeds * len(specs)} runs failed and are left out; {where}: {why}", err=True)
        click.get_current_context().exit(1)


def _print(result: dict[str, Any]) -> None:
    """Prints a table, what must be known first, and a sentence for each difference."""
    from posttrain.runs import compared

    rows, measures = result["contenders"], result["measures"]
    columns = ["", "seeds"]
    for name in measures:
        columns += [name, "interquartile mean"]
    table = []
    for row in rows:
        cells = [row["contender"], str(len(row["seeds"]))]
        for name in measures:
            cells += [_cell(row[name], name), _cell(row[name] and row[name]["iqm"], name)]
        table.append([*cells, *(_cell(row[name], name, short=True) for name in compared.COST)])
    print_table([*columns, *(name.replace("_", " ") for name in compared.COST)], table)
    for note in result["notes"]:
        click.echo(note)
    for name in measures:
        for row in rows[1:]:
            click.echo(compared.sentence(row, name, str(result["base"])))
    click.echo(f"picture           {result['folder']}/comparison.html\nruns and numbers  {result['folder']}")


def _cell(spread: dict[str, Any] | None, measure: str, *, short: bool = False) -> str:
    """A mean with its interval; without it where it is to be short."""
    from posttrain.runs.amounts import unit_of, with_interval

    if spread is None:
        return "-"
    center = spread["value"] if "value" in spread else spread["mean"]
    return with_interval(center, None if short else spread["interval"], unit_of(measure))


def _plan(
    measures: tuple[str, ...], others: int, as_json: bool, std: float | None, pilot: Path | None, find: float | None
) -> None:
    """Prints what a number of seeds can find."""
    from posttrain.errors import UserError
    from posttrain.runs import pilot as pilots
    from posttrain.runs.amounts import size, unit_of

    if (std is None) == (pilot is None) or (std is not None and (std <= 0 or len(measures) > 1)):
        raise UserError(
            "--plan takes the std of a difference between two runs of one seed, above 0, for one measure: --std 0.025; "
            "or an earlier comparison that measured it: --pilot FOLDER"
        )
    stds = pilots.observed_stds(pilot) if pilot is not None else {measures[0]: float(std or 0)}
    found = pilots.plan(stds, measures, others, find)
    if as_json:
        print_json(found)
        return
    for name, one in found.items():
        unit = unit_of(name)
        click.echo(f"{name}: std of a difference {size(one['std'], unit)}, tested at {100 * (1 - one['level']):.3g} %")
        for seeds, difference in one["detectable"].items():
            click.echo(f"  with {seeds:2d} seeds a difference of {size(difference, unit)} is found 4 times in 5")
        if "find" in one:
            needed = one["find"]["seeds"]
            click.echo(f"  {size(find or 0.0, unit)}: {'more than 1000' if needed is None else needed} seeds")
