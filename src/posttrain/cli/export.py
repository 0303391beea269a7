"""Export a run's record to TensorBoard, Weights & Biases, MLflow, Trackio, Inspect, CSV or JSON lines.

RUN is its folder, finished or not. KIND is one of `posttrain list tracker`; its settings come after the run as
name=value. Nothing leaves this machine unless a setting or --out names a server.

    posttrain export runs/grpo-1 --to tensorboard
    posttrain export runs/grpo-1 --to inspect --out logs
    posttrain export runs/grpo-1 --to csv samples=100
    posttrain export runs/grpo-1 --to mlflow --out http://localhost:5000 experiment=sums
"""

from pathlib import Path

import click

from posttrain.cli._completion import complete_runs
from posttrain.cli._output import print_json, reading_verb


@reading_verb
@click.argument("run", type=click.Path(path_type=Path), shell_complete=complete_runs)
@click.argument("settings", nargs=-1)
@click.option("--to", "kind", required=True, metavar="KIND", help="Where to: tensorboard, wandb, inspect, csv, ...")
@click.option("--out", default="exports", show_default=True, help="Folder to write into; for mlflow also an address.")
def command(run: Path, settings: tuple[str, ...], kind: str, out: str, as_json: bool) -> None:
    """Reads, sends, prints."""
    from posttrain.cli._component import component
    from posttrain.components.trackers import Tracker
    from posttrain.runs.export import export

    tracker = component(Tracker, kind, settings, {"out": out})
    sent = export(run, tracker)
    if as_json:
        print_json({"run": str(run), "to": tracker.kind, "out": out, "sent": sent})
        return
    click.echo(f"sent {sent} of {run} to {tracker.kind} in {out}")
