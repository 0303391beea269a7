"""Generate training data with a model by search, into a file that tasks=FILE reads.

MODEL and CHANGES are as for eval. The tasks are the recipe's training tasks, never its held-out ones; the reward is its
verifier. Without --search, 8 independent rollouts of each task are sampled. After an interruption the same command
continues.

    posttrain generate pebble tasks.size=400 --out solved.jsonl --rows demonstrations
    posttrain generate pebble --out values.jsonl --search '{kind: tree, value_role: null, delimiter: ;}'
    posttrain run sft tasks=solved.jsonl evaluation.verifier=match
    posttrain generate runs/grpo-1 --as pairs                     # into pairs.jsonl
    posttrain run dpo tasks=pairs.jsonl evaluation.verifier=match
    posttrain generate runs/grpo-1 --rows pairs --pairing first_pit --out pits.jsonl
    posttrain generate pebble --as pairs --annotators '[noise, [reversal, noise]]' --out annotated.jsonl
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from posttrain.cli._completion import complete_changes, complete_model
from posttrain.cli._output import print_json, trusting, verb
from posttrain.runs.measuring import SEARCH_HELP, VALUE_HELP

if TYPE_CHECKING:
    from posttrain.evaluation.generation import Kind

DEFAULT_SEARCH = "{kind: best_of, n: 8, value_role: null}"


@verb
@trusting
@click.argument("model", shell_complete=complete_model)
@click.argument("changes", nargs=-1, shell_complete=complete_changes)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write, FILE.jsonl; else one in the working folder named after the rows: pairs.jsonl.",
)
@click.option("--search", default=DEFAULT_SEARCH, show_default=True, help=SEARCH_HELP)
@click.option("--value", help=VALUE_HELP)
@click.option(
    "--as",
    "--rows",
    "kind",
    default="rated",
    show_default=True,
    type=click.Choice(["rated", "demonstrations", "pairs", "shortest", "best_of", "modes"]),
    help="Every state and rollout with its value; the best rollouts of solved tasks; a correct rollout preferred to an "
    "incorrect one; the shortest correct one to one 1.5 times as long; the best; the shortest of the better mode.",
)
@click.option(
    "--pairing", help="Rule that makes the pairs of --rows pairs: a kind of `posttrain list pairing`, or YAML."
)
@click.option(
    "--annotators",
    help="Simulated annotators who state each pair again: a list of `posttrain list annotator`, in YAML.",
)
@click.option("--at-least", default=1.0, show_default=True, help="Smallest reward of a demonstration.")
@click.option(
    "--most", default=1, show_default=True, type=click.IntRange(1), help="Demonstrations or pairs of one task."
)
def command(
    model: str,
    changes: tuple[str, ...],
    out: Path | None,
    search: str,
    value: str | None,
    kind: "Kind",
    pairing: str | None,
    annotators: str | None,
    at_least: float,
    most: int,
    as_json: bool,
) -> None:
    """Searches, scores, writes."""
    from posttrain.errors import UserError
    from posttrain.evaluation.generation import COUNTS, Rows, generate
    from posttrain.recipes.overrides import to_tree
    from posttrain.runs.measuring import (
        context_for,
        pairing_with,
        read_annotators,
        read_pairing,
        read_search,
        search_with,
    )
    from posttrain.stages.prompts import check_prompts

    out = _checked(Path(f"{kind}.jsonl") if out is None else out)
    if pairing is not None and kind != "pairs":
        raise UserError(f"--pairing {pairing} makes pairs, and --rows is {kind}; write --rows pairs")
    if annotators is not None and kind not in ("pairs", "shortest"):
        raise UserError(f"--annotators compare the texts of pairs, and --rows is {kind}; write --rows pairs")
    people = () if annotators is None else read_annotators(annotators)
    method = read_search(search)
    rule = None if pairing is None else read_pairing(pairing)
    run = context_for(model, changes, method, value)
    policies = run.first_models()
    tasks = run.problems.train
    check_prompts(policies["policy"], tasks, "the tasks")
    rows = Rows(kind=kind, at_least=at_least, most=most, writer=model, annotators=people)
    settings = {"recipe": to_tree(run.recipe), "search": search, "rows": [kind, at_least, most], "pairing": pairing}
    settings |= {} if annotators is None else {"annotators": annotators}
    with click.progressbar(length=len(tasks), label="tasks", file=sys.stderr) as bar:

        def show(done: Any) -> None:
            bar.update(done["tasks"] - bar.pos)

        pair = None if rule is None else pairing_with(rule, run, policies, writer=model)
        find = search_with(method, run, policies)
        done = generate(tasks, find, rows, out, settings=settings, pair=pair, progress=show)
    if as_json:
        print_json({"model": model, "out": str(out), "kind": kind, **done})
        return
    click.echo(f"{out}: {done['rows']} rows from {done['rollouts']} rollouts of {done['tasks']} tasks")
    for reason, count in done.items():
        if reason not in COUNTS:
            click.echo(f"  {count} tasks without a row: {reason}")


def _checked(out: Path) -> Path:
    """The path of the file to write. Raises `UserError` for one that cannot be written."""
    from posttrain.errors import UserError

    if out.suffix != ".jsonl":
        raise UserError(f"--out {out}: rows are written as JSON lines; name a file that ends with .jsonl")
    if not out.absolute().parent.is_dir():
        raise UserError(f"no folder {out.parent} to write {out.name} into (working in {Path.cwd()}); make it first")
    return out
