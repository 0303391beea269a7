"""Resume a run that was interrupted or killed, bit for bit.

RUN is its folder. It continues from the newest good checkpoint, or from the beginning where there is none.

    posttrain resume runs/quickstart-1

A recipe.yaml that was edited since the run began is refused, unless --accept-changes takes it from here on; the run's
history then says what changed.
"""

from pathlib import Path

import click

from posttrain.cli._output import verb


@verb
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--accept-changes", is_flag=True, help="Go on with an edited recipe.yaml.")
def command(run: Path, accept_changes: bool, as_json: bool) -> None:
    """Continue and finish."""
    from posttrain.cli.run import finish
    from posttrain.runs.launch import resume
    from posttrain.runs.live import LiveView

    finish(run, resume(run, LiveView(json=as_json), accept_changes=accept_changes), as_json)
