"""Evaluate a model on tasks: greedy accuracy with its interval, and pass@k.

MODEL is a bundled name, a Hugging Face folder, a model of the hub (owner/name), or the folder of a run; a run is
evaluated on its own held-out tasks, with its verifier and limits. CHANGES are path=value pairs of the recipe (grpo, or
the run's own): tasks=..., reward=..., evaluation.samples=8, evaluation.holdout=500. The most tokens of an answer and
the chat template follow a model of one's own, and what was chosen is printed.

With --budget each number of turns, or of tokens of a turn, is an evaluation of its own. With --partners the model
meets the partners that other runs trained, next to its own: cross-play.

With --reward a judge is evaluated instead, on pairs=FILE of rows with prompt, chosen, rejected and subset, in the form
of RewardBench; a second --reward is compared with the first on the same pairs. JUDGE is what posttrain judge takes.

    posttrain eval pebble tasks.kind=arithmetic tasks.size=400
    posttrain eval runs/quickstart-1 evaluation.samples=8
    posttrain eval my-model --search tree --value my-value-model
    posttrain eval runs/loop-1 --budget turns=1,2,3,4,5
    posttrain eval runs/optima-1 --partners runs/optima-2,runs/optima-3
    posttrain eval my-model tasks=test.jsonl evaluation.tasks=test.jsonl --save answers.parquet
    posttrain eval --reward likelihood --model SmolLM2-135M-Instruct pairs=bench.jsonl
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from posttrain.cli._completion import complete_changes, complete_model, role_models
from posttrain.cli._output import print_json, print_table, trusting, verb
from posttrain.errors.foreign import printable
from posttrain.runs.measuring import SEARCH_HELP, VALUE_HELP


@verb
@trusting
@click.argument("model", required=False, shell_complete=complete_model)
@click.argument("changes", nargs=-1, shell_complete=complete_changes)
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write every answer and its score to a Parquet file.",
)
@click.option("--search", help=f"Also answer by search. {SEARCH_HELP}")
@click.option("--value", help=VALUE_HELP)
@click.option("--budget", help="Evaluate with each of several budgets: turns=1,2,3 or tokens=16,64.")
@click.option("--partners", help="Evaluate with each of these runs or models in the place of the partner: RUN2,RUN3.")
@click.option("--reward", "rewards", multiple=True, metavar="JUDGE", help="Evaluate a judge on pairs=FILE; up to two.")
@role_models("For --reward: a model that it uses.")
def command(
    model: str | None,
    changes: tuple[str, ...],
    save: Path | None,
    search: str | None,
    value: str | None,
    budget: str | None,
    partners: str | None,
    rewards: tuple[str, ...],
    models: tuple[str, ...],
    as_json: bool,
) -> None:
    """Answers, scores, prints."""
    if rewards:
        _judges(rewards, [*([model] if model else []), *changes], models, as_json)
        return
    if model is None:
        raise click.UsageError("Missing argument 'MODEL'.")
    if models:
        raise click.UsageError("--model is for --reward; the model to evaluate is the first word.")
    if budget is not None or partners is not None:
        if save is not None or search is not None or value is not None:
            raise click.UsageError("--budget and --partners are without --save, --search and --value.")
        _each(model, changes, budget, partners, as_json)
        return
    _model(model, changes, save, search, value, as_json)


def _each(model: str, changes: tuple[str, ...], text: str | None, partners: str | None, as_json: bool) -> None:
    """Evaluates a model with several partners, under several budgets, or both."""
    from posttrain.runs.budgets import answers_by_budget, read_budget
    from posttrain.runs.live import describe_evaluation
    from posttrain.runs.measuring import context_for
    from posttrain.runs.partners import met, read_partners

    budget = None if text is None else read_budget(text)
    names = None if partners is None else read_partners(partners)
    context = context_for(model, changes, None, None)
    found = answers_by_budget(context, budget, None if names is None else met(context, names))
    if as_json:
        print_json({"model": model, "budgets" if names is None else "partners": found})
        return
    heads = ([] if names is None else ["partner"]) + ([] if budget is None else [budget.unit])
    rows = [
        (
            *(printable(str(own[head])) for head in heads),
            describe_evaluation(own, short=True),
            _mean(own, "mean_turns"),
            _mean(own, "mean_tokens"),
        )
        for own in found
    ]
    print_table((*heads, "accuracy", "turns taken", "tokens"), rows)


def _mean(summary: Mapping[str, Any], name: str) -> str:
    """A mean with a digit after the point; a dash where it is not measured."""
    value = summary.get(name)
    return "-" if value is None else f"{value:.1f}"


def _model(
    model: str, changes: tuple[str, ...], save: Path | None, search: str | None, value: str | None, as_json: bool
) -> None:
    """Evaluates a model on its held-out tasks."""
    from posttrain.errors import UserError
    from posttrain.runs.live import describe_evaluation
    from posttrain.runs.measuring import answers_of, context_for
    from posttrain.runs.tables import rollout_rows, write_table

    if save is not None and not save.absolute().parent.is_dir():
        raise UserError(f"no folder {save.parent} to write {save.name} into (working in {Path.cwd()}); make it first")
    context = context_for(model, (*changes, f"evaluation.search={search}") if search else changes, None, value)
    found, answers = answers_of(context)
    summary, problems = {"model": model, **found}, context.problems
    if save is not None:
        write_table(rollout_rows(answers), save, step=0)
    if as_json:
        print_json(summary)
        return
    click.echo(describe_evaluation(summary))
    for line in context.fitted.chosen:
        click.secho(printable(line), dim=True)
    click.secho(f"held out: {problems.measured}", dim=True)


def _judges(rewards: Sequence[str], words: Sequence[str], models: Sequence[str], as_json: bool) -> None:
    """Evaluates one judge, or compares two, on pairs. Raises `UserError` for other words."""
    from posttrain.audit.judges import gold_pairs
    from posttrain.audit.judges.bench import bench, compared
    from posttrain.audit.judges.measures import ask, check_readable
    from posttrain.cli._judge import open_judge, show_endpoints, tasks_of
    from posttrain.errors import UserError

    files = [word.removeprefix("pairs=") for word in words if word.startswith("pairs=")]
    settings = [word for word in words if not word.startswith("pairs=")]
    if len(files) != 1 or len(rewards) > 2:
        raise UserError("with --reward, once or twice, write one pairs=FILE of rows with prompt, chosen and rejected")
    if settings and len(rewards) > 1:
        raise UserError(f"{settings[0]} would be for both judges; write a judge's own as '{{kind: KIND, name: value}}'")
    pairs = gold_pairs(tasks_of(files[0]))
    shared = len(rewards) > 1
    asked = []
    for reward in rewards:
        opened = open_judge(reward, settings, models, shared=shared)
        asked.append(ask(opened.judge, pairs))
        show_endpoints(opened)
        check_readable(asked[-1], reward)
    found: dict[str, Any] = {reward: bench(own) for reward, own in zip(rewards, asked, strict=True)}
    difference = compared(*asked) if len(asked) == 2 else None
    if as_json:
        print_json({"pairs": len(pairs), "judges": found, **({"difference": difference} if difference else {})})
        return
    for reward, result in found.items():
        _show(reward, result)
    if difference and difference["value"] is not None:
        click.echo(
            f"{rewards[1]} less {rewards[0]}: {difference['value']:+.3f} [{difference['low']:+.3f}, "
            f"{difference['high']:+.3f}], p {difference['p']:.2g}, {difference['pairs']} pairs"
        )


def _show(name: str, result: Mapping[str, Any]) -> None:
    rows: list[tuple[str, Mapping[str, Any]]] = [("all", result["accuracy"])]
    for part in ("subsets", "length", "margin"):
        rows += [(f"{part}: {key}", own) for key, own in result[part].items()]
    click.echo(printable(name))
    print_table(("pairs of", "pairs", "accuracy", "95 %"), [_row(key, own) for key, own in rows])
    sections = "; ".join(f"{key} {own['value']:.3f}" for key, own in result["sections"].items())
    click.echo(f"sections: {sections}; score {result['score']:.3f}")
    if result["ties"] or result["unreadable"]:
        click.echo(f"ties, half right: {result['ties']}; without a verdict, wrong: {result['unreadable']}")


def _row(name: str, own: Mapping[str, Any]) -> tuple[str, ...]:
    return (name, str(own["pairs"]), f"{own['value']:.3f}", f"[{own['low']:.3f}, {own['high']:.3f}]")
