"""Compare methods over several seeds, with paired intervals.

RECIPES are two or more, each a recipe, or one with changes of its own in quotes; the first is what the others are
compared with. CHANGES are path=value pairs for all of them. Runs that are there already are not repeated, so a
stopped comparison goes on, and more seeds add to what there is.

    posttrain compare grpo dr_grpo --seeds 5 steps=40
    posttrain compare grpo "grpo rollout.n=16" --measure accuracy_after --measure reward:mean --jobs 2
    posttrain compare grpo "grpo 'reward={kind: match, wrong: 0.1}'"
    posttrain compare grpo reinforce_ada --seeds 8 --measure rl/reward:reached0.6 --json
"""

from pathlib import Path

import click

from posttrain.cli._output import print_json, print_table, verb


@verb
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPES... [CHANGES]...")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=1), help="Runs of each: seeds 0, 1, ...")
@click.option(
    "--measure",
    "measures",
    multiple=True,
    default=("accuracy_after",),
    show_default=True,
    help="A number of the summary, a metric (reward:mean, rl/reward:last10), evaluation.NAME. Repeatable.",
)
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(min=1), help="Runs at the same time.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Where the runs go.")
def command(
    recipes: tuple[str, ...], seeds: int, measures: tuple[str, ...], jobs: int, out: Path | None, as_json: bool
) -> None:
    """Run what is missing, then compare."""
    import os

    from posttrain.errors import UserError
    from posttrain.runs import comparison

    changes = [text for text in recipes if "=" in text.partition(" ")[0]]
    specs = [text for text in recipes if text not in changes]
    if len(specs) < 2:
        raise UserError(f"there must be two recipes or more to compare, got {len(specs)}: {' '.join(specs) or 'none'}")
    folder = out or comparison.default_folder(specs, changes)
    threads = max(1, (os.cpu_count() or 1) // jobs)
    contenders = comparison.contenders_of(specs, changes, folder, threads)
    failures = comparison.run_all(contenders, range(seeds), jobs, lambda text: click.echo(text, err=True))
    result = comparison.compare(contenders, range(seeds), measures, failures)
    folder.mkdir(parents=True, exist_ok=True)
    result["folder"] = str(folder)
    comparison.write(result, folder)
    if as_json:
        print_json(result)
    else:
        _print(result)
    if failures:
        where, why = next(iter(failures.items()))
        click.echo(f"{len(failures)} of {seeds * len(specs)} runs failed and are left out; {where}: {why}", err=True)
        click.get_current_context().exit(1)


def _print(result: dict[str, object]) -> None:
    """A table, and a sentence for each difference."""
    from posttrain.runs import comparison

    rows, measures = result["contenders"], result["measures"]
    assert isinstance(rows, list) and isinstance(measures, list)
    names = [*measures, *comparison.COST]
    table = []
    for row in rows:
        table.append([row["contender"], str(len(row["seeds"])), *(_cell(row[name]) for name in names)])
    print_table(["", "seeds", *names], table)
    for name in measures:
        for row in rows[1:]:
            click.echo(comparison.sentence(row, name, str(result["base"])))
    click.echo(f"runs and numbers  {result['folder']}")


def _cell(spread: dict[str, object] | None) -> str:
    """A mean with its interval."""
    if spread is None:
        return "-"
    interval = spread["interval"]
    text = f"{spread['mean']:.4g}"
    return text + (f" [{interval[0]:.4g}, {interval[1]:.4g}]" if isinstance(interval, list) else "")
