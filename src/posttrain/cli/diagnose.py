"""Diagnose models without training: what an update changed, what a model was trained on.

KIND is one of `posttrain list diagnostic`. Then come the models to inspect (bundled names, Hugging Face folders,
folders of runs) or, for parts of recipes, their kinds or recipes that have one, and its settings as name=value or
--name value. Where tasks are needed and none are named, those of the first model's run are taken, else those of grpo,
as `posttrain eval` takes them.

    posttrain diagnose sparsity pebble runs/grpo-1
    posttrain diagnose overlap pebble runs/grpo-1 runs/grpo-2
    posttrain diagnose curriculum mopps dump uniform '{kind: bandit, temperature: 0.2}' world=domains
    posttrain diagnose temperature runs/grpo-1 --entropy 0.3
    posttrain diagnose temperature pebble tasks=mine.jsonl --entropy 0.3
    posttrain diagnose overoptimisation runs/reward_model_sums-1 --gold match --n 16 --page gold.html
    posttrain diagnose bandit dpo ipo rwr reinforce peak=70
    posttrain diagnose contamination runs/grpo-1 members=trained.jsonl others=new.jsonl
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from posttrain.cli._output import print_json, trusting, verb
from posttrain.errors.foreign import printable


@verb
@trusting
@click.argument("kind")
@click.argument("words", nargs=-1, metavar="MODELS... [NAME=VALUE]...")
@click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"]))
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), help="Write the finding as an HTML page.")
def command(kind: str, words: tuple[str, ...], device: str, page: Path | None, as_json: bool) -> None:
    """Loads the models, examines them, prints the finding."""
    from functools import partial

    from posttrain.cli._component import component, options_as_settings, part_named, split_settings
    from posttrain.components.diagnostics import Diagnostic, Subject
    from posttrain.engines.native import Native
    from posttrain.errors import UserError
    from posttrain.models import Model
    from posttrain.policies import Policy
    from posttrain.policies.loading import load_policy
    from posttrain.runs.files import write_file
    from posttrain.runs.finding_page import finding_page
    from posttrain.runs.launch import find_device, model_source
    from posttrain.runs.recorded import record_of

    names, settings = split_settings(options_as_settings(words))
    diagnostic = component(Diagnostic, kind, settings, _own_tasks(kind, settings, names))
    _check_number(kind, diagnostic.subjects, names)
    where = find_device(device)  # type: ignore[arg-type]

    def load(name: str) -> Policy:
        return load_policy("policy", Model(source=model_source(name)), {}, where)

    def subject(name: str) -> Subject:
        return Subject(
            name=name,
            load=partial(load, name),
            serve=lambda policy: Native().serve(policy, 0),
            component=partial(part_named, name=name),
            record=partial(record_of, name, subject),
        )

    if page is not None and not page.absolute().parent.is_dir():
        raise UserError(f"no folder {page.parent} for {page.name} (working in {Path.cwd()}); make it first")
    finding = diagnostic.examine(*map(subject, names))
    if page is not None:
        write_file(page, finding_page(kind, names, finding))
        click.echo(printable(f"wrote {page}"), err=True)
    if as_json:
        print_json({"kind": kind, **_named(diagnostic.subjects, names), **finding.values})
        return
    for line in finding.lines:
        click.echo(line)


command.context_settings = {"ignore_unknown_options": True}  # an unknown option is a setting of the diagnostic


def _own_tasks(kind: str, settings: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """Those that `posttrain eval` takes, and reports it, for a diagnostic that needs tasks where none are named."""
    from posttrain.components.diagnostics import Diagnostic
    from posttrain.recipes.differences import spell
    from posttrain.recipes.files import find_recipe
    from posttrain.recipes.overrides import to_tree

    if not names or kind not in Diagnostic.kinds() or any(setting.startswith("tasks=") for setting in settings):
        return {}
    field = vars(Diagnostic.find(kind))["__pydantic_fields__"].get("tasks")
    if field is None or not field.is_required():
        return {}
    source = names[0] if (Path(names[0]) / "recipe.yaml").is_file() else "grpo"
    recipe = find_recipe(source)
    click.echo(printable(f"tasks of {source}: {spell(to_tree(recipe)['tasks'])}"), err=True)
    return {"tasks": recipe.tasks}


def _check_number(kind: str, subjects: Sequence[str], names: Sequence[str]) -> None:
    """Raise `UserError` for another number of names than a diagnostic takes."""
    from posttrain.errors import UserError

    several = subjects[-1:] == ("...",)
    wanted = len(subjects) - several
    if len(names) != wanted and not (several and len(names) > wanted):
        raise UserError(
            f"{kind} takes {wanted}{' or more' if several else ' model(s)'}, {', '.join(subjects).upper()}; got "
            f"{len(names)}: {', '.join(names) or 'none'}"
        )


def _named(subjects: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    """The names as JSON, by what they are."""
    if subjects[-1:] != ("...",):
        return dict(zip(subjects, names, strict=True))
    fixed = len(subjects) - 2
    return {**dict(zip(subjects[:fixed], names, strict=False)), subjects[fixed]: list(names[fixed:])}
