"""Evaluate a model on tasks: greedy accuracy with its interval, and pass@k.

MODEL is a bundled name, a Hugging Face folder, a model of the hub (owner/name), or the folder of a run; a run is
evaluated on its own held-out tasks, with its verifier and limits. CHANGES are path=value pairs of the recipe (grpo, or
the run's own): tasks=..., reward=..., evaluation.samples=8, evaluation.holdout=500. The most tokens of an answer and
the chat template follow a model of one's own, and what was chosen is printed.

    posttrain eval pebble tasks.kind=arithmetic tasks.size=400
    posttrain eval runs/quickstart-1 evaluation.samples=8
    posttrain eval my-model --search tree --value my-value-model
    posttrain eval my-model tasks=test.jsonl evaluation.tasks=test.jsonl --save answers.parquet
"""

from pathlib import Path

import click

from posttrain.cli._completion import complete_changes, complete_model
from posttrain.cli._output import print_json, trusting, verb
from posttrain.errors.foreign import printable
from posttrain.runs.measuring import SEARCH_HELP, VALUE_HELP


@verb
@trusting
@click.argument("model", shell_complete=complete_model)
@click.argument("changes", nargs=-1, shell_complete=complete_changes)
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every answer and its score to a Parquet file.",
)
@click.option("--search", help=f"Also answer by search. {SEARCH_HELP}")
@click.option("--value", help=VALUE_HELP)
def command(
    model: str, changes: tuple[str, ...], save: Path | None, search: str | None, value: str | None, as_json: bool
) -> None:
    """Answers, scores, prints."""
    from posttrain.errors import UserError
    from posttrain.runs.live import describe_evaluation
    from posttrain.runs.measuring import answers_of, context_for
    from posttrain.runs.tables import new_connection, rollout_rows, write_table

    if save is not None and not save.absolute().parent.is_dir():
        raise UserError(f"no folder {save.parent} to write {save.name} into (working in {Path.cwd()}); make it first")
    context = context_for(model, (*changes, f"evaluation.search={search}") if search else changes, None, value)
    found, answers = answers_of(context)
    summary, problems = {"model": model, **found}, context.problems
    if save is not None:
        write_table(new_connection(), rollout_rows(answers), save, step=0)
    if as_json:
        print_json(summary)
        return
    click.echo(describe_evaluation(summary))
    for line in context.fitted.chosen:
        click.secho(printable(line), dim=True)
    click.secho(f"held out: {problems.measured}", dim=True)
