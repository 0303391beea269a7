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
from posttrain.cli._search import SEARCH_HELP, VALUE_HELP


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
    from posttrain.cli._search import bench_for
    from posttrain.errors import UserError
    from posttrain.evaluation.greedy import evaluate
    from posttrain.evaluation.search import evaluate_search
    from posttrain.runs.live import describe_evaluation
    from posttrain.runs.tables import new_connection, rollout_rows, write_table
    from posttrain.stages.prompts import check_prompts

    if save is not None and not save.absolute().parent.is_dir():
        raise UserError(f"no folder {save.parent} to write {save.name} into (working in {Path.cwd()}); make it first")
    bench = bench_for(model, (*changes, f"evaluation.search={search}") if search else changes, None, value)
    models, problems, settings = bench.first_models(), bench.problems, bench.recipe.evaluation
    check_prompts(models["policy"], problems.held_out, "the held-out tasks")
    servers = {role: bench.server(policy) for role, policy in models.items()}
    result = evaluate(
        servers["policy"], problems.held_out, problems.verifier, settings, problems.sampling, problems.rollout
    )
    summary, answers = {"model": model, **result.summary}, result.trajectories
    if settings.search is not None:
        guided = evaluate_search(servers, problems.held_out, problems.verifier, settings.search, settings.correct_at)
        summary["searched"], answers = guided.summary, (*answers, *guided.trajectories)
    summary["verifier"] = problems.verifier.kind
    if save is not None:
        write_table(new_connection(), rollout_rows(answers), save, step=0)
    if as_json:
        print_json(summary)
        return
    click.echo(describe_evaluation(summary))
    click.secho(f"{len(problems.held_out)} held-out tasks, judged by {problems.verifier.kind}", dim=True)
