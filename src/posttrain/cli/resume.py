"""Resume a run that was interrupted or killed, bit for bit, or give one that has ended more steps.

RUN is its folder. It continues from the newest good checkpoint, or from the start where there is none. CHANGES are
path=value pairs of its recipe that hold from there on; the run's recipe.yaml and history record them.

    posttrain resume runs/quickstart-1
    posttrain resume runs/grpo-1 steps=200

With a constant learning rate, a run that gets more steps is the run that was started with that many. A recipe.yaml that
was edited since the run started is refused; with --accept-changes it is used from here on, and recorded too.
"""

from pathlib import Path

import click

from posttrain.cli._completion import complete_changes, complete_runs
from posttrain.cli._output import limited, trusting, verb


@verb
@trusting
@click.argument("run", type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.argument("changes", nargs=-1, shell_complete=complete_changes)
@limited
@click.option("--accept-changes", is_flag=True, help="Continue with an edited recipe.yaml.")
def command(run: Path, changes: tuple[str, ...], accept_changes: bool, as_json: bool, **limits: float | None) -> None:
    """Resumes and finishes."""
    from posttrain.cli.run import finish
    from posttrain.runs.launch import resume
    from posttrain.runs.limits import time_limit
    from posttrain.runs.live import LiveView

    limit = time_limit(**limits)
    finish(run, resume(run, LiveView(json=as_json), changes, accept_changes=accept_changes, limit=limit), as_json)
