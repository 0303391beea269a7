"""Diagnose models without training: what an update changed, what a model was trained on.

KIND is one of `posttrain list diagnostic`. Then come the models to inspect (bundled names, Hugging Face folders,
folders of runs) or, for parts of recipes, their kinds or recipes that have one, and its settings as name=value or
--name value.

    posttrain diagnose sparsity pebble runs/grpo-1
    posttrain diagnose overlap pebble runs/grpo-1 runs/grpo-2
    posttrain diagnose curriculum mopps dump uniform '{kind: bandit, temperature: 0.2}' world=domains
    posttrain diagnose temperature pebble tasks=mine.jsonl --entropy 0.3
    posttrain diagnose bandit dpo ipo rwr reinforce peak=70
    posttrain diagnose contamination runs/grpo-1 members=trained.jsonl others=new.jsonl
"""

from collections.abc import Sequence
from typing import Any

import click

from posttrain.cli._output import print_json, trusting, verb


@verb
@trusting
@click.argument("kind")
@click.argument("words", nargs=-1, metavar="MODELS... [NAME=VALUE]...")
@click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"]))
def command(kind: str, words: tuple[str, ...], device: str, as_json: bool) -> None:
    """Loads the models, examines them, prints the finding."""
    from functools import partial

    from posttrain.cli._component import component, options_as_settings, part_named, split_settings
    from posttrain.components.diagnostics import Diagnostic, Subject
    from posttrain.engines.native import Native
    from posttrain.models import Model
    from posttrain.policies import Policy
    from posttrain.policies.loading import load_policy
    from posttrain.runs.launch import find_device, model_source

    names, settings = split_settings(options_as_settings(words))
    diagnostic = component(Diagnostic, kind, settings)
    _check_number(kind, diagnostic.subjects, names)
    where = find_device(device)  # type: ignore[arg-type]

    def load(name: str) -> Policy:
        return load_policy("policy", Model(source=model_source(name)), {}, where)

    subjects = [
        Subject(
            name=name,
            load=partial(load, name),
            serve=lambda policy: Native().serve(policy, 0),
            component=partial(part_named, name=name),
        )
        for name in names
    ]
    finding = diagnostic.examine(*subjects)
    if as_json:
        print_json({"kind": kind, **_named(diagnostic.subjects, names), **finding.values})
        return
    for line in finding.lines:
        click.echo(line)


command.context_settings = {"ignore_unknown_options": True}  # an unknown option is a setting of the diagnostic


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
