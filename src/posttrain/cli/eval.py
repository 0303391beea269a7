"""Evaluate a model on tasks: greedy accuracy with its interval, and pass@k.

MODEL is a bundled name, a Hugging Face folder, or the folder of a run; for a run its own held-out tasks, verifier and
limits are taken. CHANGES are path=value pairs of the recipe that says the rest (grpo, or the run's own): tasks=...,
reward=..., evaluation.samples=8, evaluation.holdout=500.

    posttrain eval pebble tasks.kind=arithmetic tasks.size=400
    posttrain eval runs/quickstart-1 evaluation.samples=8
    posttrain eval my-model --search tree --value my-value-model
    posttrain eval my-model tasks=test.jsonl evaluation.tasks=test.jsonl --save answers.parquet
"""

from pathlib import Path

import click

from posttrain.cli._output import print_json, verb
from posttrain.runs.measuring import SEARCH_HELP, VALUE_HELP


@verb
@click.argument("model")
@click.argument("changes", nargs=-1)
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every answer and its judgement to a Parquet file.",
)
@click.option("--search", help=f"Answer by search too. {SEARCH_HELP}")
@click.option("--value", help=VALUE_HELP)
def command(
    model: str, changes: tuple[str, ...], save: Path | None, search: str | None, value: str | None, as_json: bool
) -> None:
    """Answer, judge, print."""
    from posttrain.errors import UserError
    from posttrain.runs.live import describe_evaluation
    from posttrain.runs.measuring import answers_of, bench_for
    from posttrain.runs.tables import new_connection, rollout_rows, write_table

    if save is not None and not save.absolute().parent.is_dir():
        raise UserError(f"no folder {save.parent} to write {save.name} into (working in {Path.cwd()}); make it first")
    bench = bench_for(model, (*changes, f"evaluation.search={search}") if search else changes, None, value)
    found, answers = answers_of(bench)
    summary, problems = {"model": model, **found}, bench.problems
    if save is not None:
        write_table(new_connection(), rollout_rows(answers), save, step=0)
    if as_json:
        print_json(summary)
        return
    click.echo(describe_evaluation(summary))
    click.secho(f"{len(problems.held_out)} held-out tasks, judged by {problems.verifier.kind}", dim=True)
