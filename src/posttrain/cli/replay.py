"""Compute a run with schedule=streaming again from its journal, and compare the weights.

RUN is its folder. The new run samples each piece with the weights that the journal names, and learns from its batches.
It ends with exit code 0 where the weights are the same, bit for bit.

    posttrain replay runs/grpo-1

Other runs have no order of samples of their own: posttrain run RUN/recipe.yaml repeats them.
"""

from pathlib import Path

import click

from posttrain.cli._completion import complete_runs
from posttrain.cli._output import trusting, verb


@verb
@trusting
@click.argument("run", type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.option(
    "--runs", "root", default="runs", show_default=True, type=click.Path(path_type=Path), help="Folder of runs."
)
def command(run: Path, root: Path, as_json: bool) -> None:
    """Runs again, and compares."""
    from posttrain.cli.run import finish
    from posttrain.runs.live import LiveView
    from posttrain.runs.replaying import replay

    folder, summary = replay(run, root, LiveView(json=as_json))
    finish(folder, summary, as_json)
    click.secho(f"{folder} has the weights of {run}, bit for bit", err=as_json)
