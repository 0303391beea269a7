"""Diagnose models without training: what an update changed, what a model was trained on.

KIND is one of `posttrain list diagnostic`. Then come the models to inspect (bundled names, Hugging Face folders,
folders of runs), and its settings as name=value.

    posttrain diagnose sparsity pebble runs/grpo-1
    posttrain diagnose overlap pebble runs/grpo-1 runs/grpo-2
    posttrain diagnose contamination runs/grpo-1 members=trained.jsonl others=new.jsonl
"""

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

    from posttrain.cli._component import component, split_settings
    from posttrain.components.diagnostics import Diagnostic, Subject
    from posttrain.engines.native import Native
    from posttrain.errors import UserError
    from posttrain.models import Model
    from posttrain.policies.loading import load_policy
    from posttrain.runs.launch import find_device, model_source

    names, settings = split_settings(words)
    diagnostic = component(Diagnostic, kind, settings)
    if len(names) != len(diagnostic.subjects):
        raise UserError(
            f"{kind} takes {len(diagnostic.subjects)} model(s), {', '.join(diagnostic.subjects).upper()}; got "
            f"{len(names)}: {', '.join(names) or 'none'}"
        )
    where = find_device(device)  # type: ignore[arg-type]
    subjects = [
        Subject(
            name=name,
            load=partial(load_policy, "policy", Model(source=model_source(name)), {}, where),
            serve=lambda policy: Native().serve(policy, 0),
        )
        for name in names
    ]
    finding = diagnostic.examine(*subjects)
    if as_json:
        print_json({"kind": kind, **dict(zip(diagnostic.subjects, names, strict=True)), **finding.values})
        return
    for line in finding.lines:
        click.echo(line)
