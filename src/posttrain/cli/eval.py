"""Measure a model on tasks: greedy accuracy with its interval, and pass@k of sampled answers.

MODEL is a bundled name, a Hugging Face folder, or the folder of a run; for a run its own held-out tasks, verifier and
limits are taken. CHANGES are path=value pairs of the recipe that says the rest (grpo, or the run's own): tasks=...,
reward=..., evaluation.samples=8, evaluation.holdout=500.

    posttrain eval pebble tasks.kind=arithmetic tasks.size=400
    posttrain eval runs/quickstart-1 evaluation.samples=8
    posttrain eval my-model tasks=test.jsonl evaluation.tasks=test.jsonl --save answers.parquet
"""

from pathlib import Path

import click

from posttrain.cli._output import print_json, verb


@verb
@click.argument("model")
@click.argument("changes", nargs=-1)
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every answer and its judgement to a Parquet file.",
)
def command(model: str, changes: tuple[str, ...], save: Path | None, as_json: bool) -> None:
    """Answer, judge, print."""
    from dataclasses import replace

    from posttrain.errors import UserError
    from posttrain.evaluation import evaluate
    from posttrain.recipe_files import find_recipe
    from posttrain.runs.bench import Bench
    from posttrain.runs.launch import model_source, prepare_machine
    from posttrain.runs.live import describe_evaluation
    from posttrain.runs.tables import new_connection, rollout_rows, write_table
    from posttrain.stages._prompts import check_prompts

    for change in changes:
        if change.partition("=")[0] in ("model", "models.policy.source"):
            raise UserError(f"the model to measure is '{model}', so '{change}' would do nothing; leave one of them out")
    if save is not None and not save.absolute().parent.is_dir():
        raise UserError(f"no folder {save.parent} to write {save.name} into (working in {Path.cwd()}); make it first")
    is_run = (Path(model) / "recipe.yaml").is_file()
    recipe = find_recipe(model if is_run else "grpo", changes)
    measured = replace(recipe.models["policy"], source=model_source(model), shape=None, lora=None, trained=False)
    recipe = replace(recipe, models={"policy": measured})
    bench = Bench(recipe, prepare_machine(recipe))
    policy = bench.first_models()["policy"]
    problems = bench.problems
    check_prompts(policy, problems.held_out, "the held-out tasks")
    server, verifier, rollout = bench.server(policy), problems.verifier, problems.rollout
    result = evaluate(server, problems.held_out, verifier, recipe.evaluation, problems.sampling, rollout)
    if save is not None:
        write_table(new_connection(), rollout_rows(result.trajectories), save, step=0)
    summary = {"model": model, **result.summary, "verifier": problems.verifier.kind}
    if as_json:
        print_json(summary)
        return
    click.echo(describe_evaluation(summary))
    click.secho(f"{len(problems.held_out)} held-out tasks, judged by {problems.verifier.kind}", dim=True)
