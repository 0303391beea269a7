"""Estimate: the memory and time of a run, and whether it will fit.

RECIPE and CHANGES are those of `posttrain run`. Memory comes from the headers of the models' files. Seconds come from
one batch of each stage that samples, and one forward and backward pass; --no-measure leaves them out, and loads
nothing.

    posttrain estimate grpo model=my-model tasks=mine.jsonl
    posttrain estimate grpo model=my-model models.policy.dtype=bfloat16 --no-measure
"""

import click

from posttrain.cli._completion import complete_changes, complete_recipe
from posttrain.cli._output import print_json, trusting, verb
from posttrain.errors.foreign import printable


@verb
@trusting
@click.argument("recipe", shell_complete=complete_recipe)
@click.argument("changes", nargs=-1, shell_complete=complete_changes)
@click.option("--measure/--no-measure", default=True, help="Load the models and measure the seconds of a step.")
@click.option("--price", type=click.FloatRange(0.0), help="Price of an hour of this machine; prints that of the run.")
def command(recipe: str, changes: tuple[str, ...], measure: bool, price: float | None, as_json: bool) -> None:
    """Resolves, estimates, measures."""
    from posttrain.errors import UserError
    from posttrain.recipes.files import find_recipe
    from posttrain.runs.amounts import duration
    from posttrain.runs.context import RunContext
    from posttrain.runs.launch import prepare_machine
    from posttrain.runs.stopwatch import seconds_a_step

    resolved = find_recipe(recipe, changes)
    context = RunContext(resolved, prepare_machine(resolved))
    found = context.estimate()
    seconds: dict[str, dict[str, float]] = {}
    if price is not None and not measure:
        raise UserError("--price is of the measured time; leave out --no-measure")
    if measure:
        found.check()
        seconds = seconds_a_step(context)
    steps = {name: stage.total_steps(context.problems.of(stage)) for name, stage in context.recipe.stages.items()}
    whole = sum(parts["total"] * steps[name] for name, parts in seconds.items())
    if as_json:
        available = found.available.bytes if found.available is not None else None
        print_json(
            {
                "peak_bytes": found.total,
                "parts": found.parts,
                "available_bytes": available,
                "fits": found.fits,
                "unknown": found.unknown,
                "seconds_a_step": seconds,
                "seconds": whole,
                "cost": None if price is None else whole * price / 3600,
            }
        )
        return
    for line in found.lines():
        click.echo(printable(line))
    for name, parts in seconds.items():
        each = ", ".join(f"{part} {value:.2g} s" for part, value in parts.items() if part != "total")
        click.echo(f"stage {name}: about {parts['total']:.2g} s a step ({each})")
    if seconds:
        cost = "" if price is None else f", {whole * price / 3600:.2f} at {price:g} an hour"
        counted = ", ".join(f"{steps[name]} of {name}" for name in seconds)
        click.echo(f"steps {counted}: about {duration(whole)}{cost}; evaluation and loading come on top")
